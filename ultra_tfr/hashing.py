"""Random bits that follow from numbers, the same on all machines."""

import numpy as np


def mixed(numbers):
  """Bits that look random, and tell equal numbers alike.

  Args:
    numbers: an array of uint64.

  Returns:
    An array of uint64, a permutation of all that there are.

  Source: the last steps of splitmix64, Steele, Lea and Flood, "Fast Splittable
  Pseudorandom Number Generators", OOPSLA 2014.

  >>> hex(mixed(np.array([0x9e3779b97f4a7c15], np.uint64))[0])
  '0xe220a8397b1dcdaf'
  """
  for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
    numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
  return numbers ^ (numbers >> np.uint64(31))
