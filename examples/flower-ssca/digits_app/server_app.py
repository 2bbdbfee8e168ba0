"""The server's part: which model, which algorithm, which limit. It holds no rows and sees sums only."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import colonnade as cn
from colonnade.flower import SSCA

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, say what came of it, and save the model where a folder was given."""
    config = context.run_config
    strategy = SSCA(
        sites=int(config["sites"]),
        classes=range(10),
        hidden=int(config["hidden"]),
        cost_limit=float(config["cost-limit"]) or None,
        sum=str(config["sum"]),
        algorithm=cn.SSCA(rounds=int(config["rounds"]), batch=int(config["batch"]), seed=int(config["seed"])),
    )
    result = strategy.start(grid)
    last = max(result.evaluate_metrics_clientapp)
    print(f"After {last} rounds: {result.evaluate_metrics_clientapp[last]}")
    if config["out"]:
        strategy.classifier().save(str(config["out"]))
