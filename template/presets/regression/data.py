# data regression
