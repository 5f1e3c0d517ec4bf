"""Robot logs: ROS 1 bags, ROS 2 bags (sqlite and MCAP) and MCAP files, indexed without reading their payload."""
