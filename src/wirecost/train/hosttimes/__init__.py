"""Measures what layers and communication cost the host, on one device, with process groups that move nothing."""

from wirecost.train.hosttimes.costs import HostCost, MeasuredHost
from wirecost.train.hosttimes.measure import measure_host
from wirecost.train.hosttimes.variants import Cost, HostRequest

__all__ = ["Cost", "HostCost", "HostRequest", "MeasuredHost", "measure_host"]
