"""`benchmarks.engines` gathers what there is; a missing figure is null with its reason."""

import json

import pytest

from benchmarks import engines
from benchmarks.engines import NotRunError, Part, found, gathered, gpu_table, last_object


def test_the_last_line_or_the_whole_text_is_the_object():
    assert last_object('progress\n{"a": 1}\n') == {"a": 1}
    assert last_object('{\n "a": 1\n}\n') == {"a": 1}
    for text in ("", "no object", "[1]"):
        with pytest.raises(NotRunError):
            last_object(text)


def test_missing_parts_are_null_with_a_reason(monkeypatch, tmp_path):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"versions_supported": ["0.32.0"], "versions_failed": []}))
    parts = (
        Part("versions", ("versions_supported", "versions_failed"), file=report),
        Part("door", ("door_added_ttft_p50_ms",), module=("benchmarks.no_such_module",)),
        Part("gpu", ("gpu",), file=tmp_path / "missing.json"),
        Part("agree", ("outside_client_agreement",), file=report),
    )
    monkeypatch.setattr(engines, "PARTS", parts)
    monkeypatch.setattr(engines, "ROOT", tmp_path)
    result = gathered([part.name for part in parts], None)
    assert result["versions_supported"] == ["0.32.0"]
    assert result["versions_failed"] == []
    assert result["door_added_ttft_p50_ms"] is result["gpu"] is result["outside_client_agreement"] is None
    assert set(result["not_run"]) == {"door", "gpu", "agree"}
    assert set(gathered(["versions"], None)["not_run"]) == {"door", "gpu", "agree"}


def test_a_kept_part_does_not_run_again(tmp_path):
    (tmp_path / "door.json").write_text('{"door_added_ttft_p50_ms": 0.2}\n')
    part = Part("door", ("door_added_ttft_p50_ms",), module=("benchmarks.no_such_module",))
    assert found(part, tmp_path) == {"door_added_ttft_p50_ms": 0.2}
    with pytest.raises(NotRunError, match="does not exist"):
        found(part, None)


def test_a_run_without_a_gpu_gives_no_table():
    assert gpu_table({"not_run": "NVML finds no GPU on this machine", "arms": {}}) is None
    assert gpu_table({"gpu": None, "arms": {"l2": {}}}) is None
    assert gpu_table({"gpu": "H200", "arms": {"l2": {}}})["arms"] == {"l2": {}}
