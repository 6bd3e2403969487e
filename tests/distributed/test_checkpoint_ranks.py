"""Checkpoints of real ranks, with a folder for all of them and with one for each."""

from launch import HERE, command, run


def test_ranks_need_not_share_a_folder(tmp_path):
    done = run(command("torch", 2, str(HERE / "checkpoints.py"), "torch", str(tmp_path)))
    assert done.returncode == 0, done.stderr
