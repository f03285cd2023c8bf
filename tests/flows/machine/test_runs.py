"""Which stages the last runs had: what is damaged of it is named, and the rest is read."""

from gristmill.flows.machine.runs import recipes_by_stage
from gristmill.storage import checked_json


def test_a_damaged_file_is_named_and_passed_over(tmp_path, caplog):
    checked_json.write(str(tmp_path / "runs/web.json"), {"stages": ["rules-1"]})
    (tmp_path / "runs/books.json").write_bytes(b"{")
    assert recipes_by_stage(str(tmp_path)) == {"rules-1": ["web"]}
    [message] = caplog.messages
    assert f"{tmp_path}/runs/books.json" in message and "\n" not in message
