/** Which image takes the place of an earlier release's. Pure. */

/**
 * The image of this release in the repository that is used, where what stands is that of an earlier release; undefined
 * for a tag that is no release, for a digest, and for the same release or a newer one.
 */
export function upgradedImage(earlier: string, ours: string): string | undefined {
  const [from, to] = [releaseOf(earlier), releaseOf(ours)]
  if (from === undefined || to === undefined || !isBefore(from.numbers, to.numbers)) return undefined
  return `${from.repository}:${from.prefix}${to.text}`
}

interface Release {
  readonly repository: string
  /** `v` or nothing. */
  readonly prefix: string
  readonly text: string
  readonly numbers: readonly number[]
}

function releaseOf(image: string): Release | undefined {
  const match = /^([^@]+):(v?)((\d{1,6})\.(\d{1,6})\.(\d{1,6}))$/.exec(image)
  if (match === null) return undefined
  const [, repository = '', prefix = '', text = '', ...numbers] = match
  return { repository, prefix, text, numbers: numbers.map(Number) }
}

function isBefore(a: readonly number[], b: readonly number[]): boolean {
  const i = a.findIndex((number, at) => number !== b[at])
  return i >= 0 && (a[i] ?? 0) < (b[i] ?? 0)
}
