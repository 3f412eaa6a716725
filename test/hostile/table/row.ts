/** One attack, or one fault, as test/hostile/README.md and its test describe it. */
export interface AttackRow {
  /** By which the test names it: kebab-case, unique among all. */
  readonly id: string
  /** What was tried: a whole sentence. */
  readonly tried: string
  /** What has to hold all the same. */
  readonly holds: string
  /** What prevents it, as a reader of the code finds it. */
  readonly against: string
}
