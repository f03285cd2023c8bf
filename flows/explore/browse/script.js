"use strict";
// A slider writes into its field, and a moment later the threshold is replayed: the section comes from the same page.
let waiting = 0;
let asked = null;

async function replay(form) {
  if (asked) asked.abort();
  asked = new AbortController();
  const section = document.getElementById("replay");
  const address = "replay?" + new URLSearchParams(new FormData(form));
  if (!section) { location.href = address; return; }
  const said = form.querySelector("output");
  for (const other of document.querySelectorAll("form.control output")) other.textContent = "";
  said.textContent = "…";
  section.classList.add("busy");
  try {
    const answer = await fetch(address, { signal: asked.signal });
    if (answer.status === 409) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const made = page.getElementById("replay");
    const trouble = page.querySelector(".error");
    section.replaceChildren(...(made ? made.childNodes : [trouble || "The server does not answer."]));
    said.textContent = made && made.dataset.moved ? made.dataset.moved + ": " : "";
    const link = document.createElement("a");
    link.href = "#replay";
    link.textContent = made && made.dataset.moved ? "which" : "failed";
    said.append(link);
    history.replaceState(null, "", address);
    section.classList.remove("busy");
  } catch (error) {
    if (error.name !== "AbortError") { section.classList.remove("busy"); said.textContent = "The server does not answer."; }
  }
}

function valueOf(slider) {
  const low = Number(slider.dataset.low), high = Number(slider.dataset.high), share = slider.value / slider.max;
  const value = slider.dataset.scale === "logarithmic" ? low * (high / low) ** share : low + (high - low) * share;
  return slider.dataset.whole ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

function place(slider, value) {
  const low = Number(slider.dataset.low), high = Number(slider.dataset.high);
  const share = slider.dataset.scale === "logarithmic" ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  if (Number.isFinite(share)) slider.value = Math.round(share * slider.max);
}

for (const slider of document.querySelectorAll(".control input[type=range]")) {
  const field = slider.form.elements.value;
  const show = () => { slider.setAttribute("aria-valuetext", field.value); };
  place(slider, Number(field.value));
  show();
  slider.addEventListener("input", () => { field.value = valueOf(slider); show(); });
  slider.addEventListener("change", () => { clearTimeout(waiting); waiting = setTimeout(() => replay(slider.form), 150); });
  field.addEventListener("input", () => { place(slider, Number(field.value)); show(); });
}
for (const form of document.querySelectorAll("form.control[action=replay]")) {
  form.addEventListener("submit", (event) => { event.preventDefault(); replay(form); });
}

// A vote is sent as it is given; the same one again takes it back.
async function vote(button) {
  const group = button.closest(".vote"), said = group.querySelector("output");
  const pressed = button.getAttribute("aria-pressed") === "true";
  said.textContent = "…";
  try {
    const answer = await fetch(group.dataset.to + "&vote=" + (pressed ? "" : button.value), { method: "POST" });
    if (answer.ok) {
      for (const other of group.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button && !pressed));
    }
    said.textContent = answer.ok ? (pressed ? "removed" : "saved") : "not saved: " + (await answer.text() || answer.status);
  } catch (error) { said.textContent = "The server does not answer."; }
}
for (const button of document.querySelectorAll(".vote button")) button.addEventListener("click", () => vote(button));

// j and k go from document to document, 1 to 3 vote on one, n draws others, / leads to the first field of the page.
const articles = [...document.querySelectorAll("article")];
for (const article of articles) article.tabIndex = -1;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const at = articles.indexOf(document.activeElement.closest("article"));
  const next = { j: at + 1, k: Math.max(at - 1, 0) }[event.key];
  if (next !== undefined && articles[next]) { articles[next].focus(); articles[next].scrollIntoView({ block: "start" }); }
  const choice = { 1: 0, 2: 1, 3: 2 }[event.key];
  if (choice !== undefined) (articles[at] || (articles.length ? null : document))?.querySelectorAll(".vote button")[choice]?.click();
  if (event.key === "n") document.querySelector("a[rel=next]")?.click();
  if (event.key === "/") { event.preventDefault(); document.querySelector("main input:not([type=hidden]), header input")?.focus(); }
});
