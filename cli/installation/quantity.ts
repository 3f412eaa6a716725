/** Parses quantities of Kubernetes, such as `1Gi` and `500M`. Pure. */

const FACTORS: Readonly<Record<string, number>> = {
  '': 1,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
}

/** Returns the number of units (bytes for storage), or NaN if the text is not a quantity. */
export function parseQuantity(text: string): number {
  const [, number = '', suffix = ''] = /^([0-9.]+(?:e[0-9]+)?)([a-zA-Z]*)$/.exec(text) ?? []
  return number === '' ? NaN : Number(number) * (FACTORS[suffix] ?? NaN)
}
