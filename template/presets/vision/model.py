# model vision
