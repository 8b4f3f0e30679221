"""Commands whose program or script isn't there are refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirecost.errors import SpecError
from wirecost.study.job_study import job_study
from wirecost.study.runnable import check_runnable


def check(command: list[str]) -> None:
    check_runnable(job_study(command, name="mine", networks=["native"], hosts=["1"]))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["pyton", "train.py"], "there is no program 'pyton'"),
        (["python3", "trian.py"], "there is no script 'trian.py'; did you mean 'train.py'"),
        (["python3", "-u", "src/trian.py"], "there is no script 'src/trian.py'; did you mean 'src/train.py'"),
        (["bash", "nothing.sh"], "there is no script 'nothing.sh' in "),
        (
            ["python", "-u"],
            "'python -u' has no script, so it would read standard input; write it as: python -u train.py",
        ),
        (["bash"], "'bash' has no script, .* write it as: bash train.sh"),
    ],
)
def test_a_misspelt_command_is_refused(
    command: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for path in ("train.py", "src/train.py"):
        (tmp_path / path).touch()
    with pytest.raises(SpecError, match=words):
        check(command)
