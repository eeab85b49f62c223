# A perceptron in AWK: each line is x, y and a class of -1 or 1.
{ x[NR] = $1; y[NR] = $2; class[NR] = $3 }
END {
  for (epoch = 1; epoch <= epochs; epoch++)
    for (i = 1; i <= NR; i++)
      if (class[i] * (a * x[i] + b * y[i] + c) <= 0) {
        a += rate * class[i] * x[i]; b += rate * class[i] * y[i]; c += rate * class[i]
      }
  for (i = 1; i <= NR; i++) right += class[i] * (a * x[i] + b * y[i] + c) > 0
  print "accuracy=" right / NR
}
