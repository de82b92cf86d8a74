"""Rules about hosts and GPUs: alerts and the doctor."""
