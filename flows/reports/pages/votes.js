"use strict";
const about = JSON.parse(document.getElementById("votes").dataset.about);
const page = about.step + "-" + about.stage;
const articles = [...document.querySelectorAll("article")];
const votes = {};

function show() {
  document.getElementById("count").textContent = Object.keys(votes).length + " of " + articles.length;
}

function keep() {
  try { localStorage.setItem("audit " + page, JSON.stringify(votes)); } catch (error) { /* a browser without storage */ }
}

for (const article of articles) {
  for (const input of article.querySelectorAll("input")) {
    input.addEventListener("change", () => { votes[article.dataset.id] = input.value; keep(); show(); });
  }
}
try {
  const before = JSON.parse(localStorage.getItem("audit " + page) || "{}");
  for (const article of articles) {
    for (const input of article.querySelectorAll("input")) {
      if (before[article.dataset.id] === input.value) { input.checked = true; votes[article.dataset.id] = input.value; }
    }
  }
} catch (error) { /* a browser without storage */ }
show();

document.getElementById("save").addEventListener("click", () => {
  const text = JSON.stringify({ ...about, votes: votes }, null, 2);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = "votes-" + page + ".json";
  document.body.append(link);
  link.click();
  link.remove();
});
