from pathlib import Path

from wirecost.jobs.measured_logs import MeasuredLogs


def test_what_nccl_logs_while_ranks_are_ended_is_cut_off(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    nccl, other = logs / "nccl-host1-22.log", logs / "rank-1.log"
    nccl.write_text("Connected all rings\n")
    other.write_text("step 1\n")
    with MeasuredLogs(tmp_path) as measured:
        measured.measured()
        for path in (nccl, other):
            with path.open("a") as file:
                file.write("Connection closed by remote peer\n")
        (logs / "nccl-host1-30.log").write_text("a process that began later\n")
    assert nccl.read_text() == "Connected all rings\n"
    assert other.read_text() == "step 1\nConnection closed by remote peer\n"
    assert (logs / "nccl-host1-30.log").exists()


def test_logs_of_a_job_that_failed_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    nccl = tmp_path / "logs" / "nccl-host0-21.log"
    nccl.write_text("Connected all rings\n")
    with MeasuredLogs(tmp_path), nccl.open("a") as file:
        file.write("Connection closed by remote peer\n")
    assert nccl.read_text().count("\n") == 2


def test_a_log_that_the_job_deletes_as_it_ends_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    gone, kept = (tmp_path / "logs" / f"nccl-host{host}-21.log" for host in range(2))
    for path in (gone, kept):
        path.write_text("Connected all rings\n")
    with MeasuredLogs(tmp_path) as logs:
        logs.measured()
        gone.unlink()
        with kept.open("a") as file:
            file.write("Connection closed by remote peer\n")
    assert kept.read_text() == "Connected all rings\n"
