"""A sparse classifier on a Ray Dataset: two workers of Ray Train, predictions by Ray Data.

pip install 'psfit-toolbox[ray]'
python examples/ray_dataset.py
ray job submit -- python examples/ray_dataset.py         # on a cluster
"""

import sys

import ray
import ray.data
from ray.train import RunConfig, ScalingConfig
from sklearn.datasets import load_breast_cancer

from psfit import SparseLogisticRegression
from psfit.ray import fit_on_ray, predict_on_ray


def main(storage: str | None) -> None:
    table = load_breast_cancer(as_frame=True).frame
    patients = ray.data.from_pandas([table[:100], table[100:]])
    model = fit_on_ray(
        SparseLogisticRegression(kappa=4, standardize=True),
        patients,
        ScalingConfig(num_workers=2, use_gpu=False),
        label="target",
        run_config=RunConfig(storage_path=storage),
    )
    print("features:", ", ".join(model.feature_names_in_[model.support_]))
    known = predict_on_ray(model, patients).to_pandas()
    print(f"right: {(known['prediction'] == known['target']).sum()} of {len(known)}")


if __name__ == "__main__":
    ray.init(log_to_driver=False, include_dashboard=False)
    main(sys.argv[1] if len(sys.argv) > 1 else None)
    ray.shutdown()
