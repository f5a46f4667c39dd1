# model regression
