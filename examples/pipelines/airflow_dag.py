"""An Airflow DAG of one pipeline: a task that is retried repeats its run and publishes once."""

from __future__ import annotations

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="social",
    schedule="*/10 * * * *",
    start_date=pendulum.datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    # The id of a run names its branch: letters, digits, `_`, `-` and dots.
    BashOperator(
        task_id="run",
        cwd="/srv/social",
        bash_command="omnigraph pipeline run social.yaml --run-id {{ ts_nodash }} --json",
        retries=3,
    )
