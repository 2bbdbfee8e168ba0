"""A training every week in Airflow, at the label holder: check, run, gate, promote, each a task of its own.

Set COLONNADE_JOB, COLONNADE_PARTY and COLONNADE_SCHEDULING (the folder of this example) where Airflow's workers run.
Partners have the first two tasks alone, at the same time.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

JOB = os.environ.get("COLONNADE_JOB", "loans/job.toml")
PARTY = os.environ.get("COLONNADE_PARTY", "bank")
GATE = f"{os.environ.get('COLONNADE_SCHEDULING', Path(__file__).parent)}/gate.py"
FILES = f"{Path(JOB).parent}/{PARTY}-files"
WHO = f"{quote(JOB)} --as {quote(PARTY)}"

with DAG(
    "colonnade_retrain",
    schedule="0 2 * * 0",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a training that was missed is not made up for: the partners were there then, and are not now
    max_active_runs=1,
    default_args={"retries": 0, "execution_timeout": timedelta(hours=6)},
) as dag:
    # 3 says that a partner is not up yet, which `run` waits for.
    check = BashOperator(task_id="check", bash_command=f"colonnade check {WHO} || test $? -eq 3")
    run = BashOperator(task_id="run", bash_command=f"colonnade run {WHO} --quiet --log json")
    # The version's id goes to the next task; exit code 3 says that it is in use already, and skips that.
    gate = BashOperator(
        task_id="gate",
        bash_command=f"python3 {quote(GATE)} {quote(FILES)} {quote(PARTY)} --at-least 0.70 --worse-by 0.01",
        skip_on_exit_code=3,
        do_xcom_push=True,
    )
    promote = BashOperator(
        task_id="promote",
        bash_command=f"colonnade model promote {WHO} {{{{ ti.xcom_pull(task_ids='gate') }}}}",
    )
    check >> run >> gate >> promote
