"""Each node's part: where its rows come from, and an app that answers what the strategy asks."""

from flwr.app import Context
from sklearn.datasets import load_digits

import colonnade as cn
from colonnade.flower import client_app


def load_site(context: Context) -> cn.Site:
    """One part of scikit-learn's digits. A real site reads its own rows here."""
    X, y = load_digits(return_X_y=True)
    sites = cn.split_rows(X / 16, y, into=int(context.run_config["sites"]), seed=0)
    return sites[int(context.node_config["partition-id"])]


# Without plain=True a site answers under masks only, whatever the server's `sum` is: digits may be seen.
app = client_app(load_site, plain=True)
