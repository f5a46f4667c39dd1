# data vision
