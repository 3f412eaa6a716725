/** One attack or one fault, as test/hostile/README.md and its test describe it. */
export interface AttackRow {
  /** The name by which the test refers to it: kebab-case, unique among all rows. */
  readonly id: string
  /** What was tried, as a whole sentence. */
  readonly tried: string
  /** What must hold all the same. */
  readonly holds: string
  /** What prevents it, and where a reader finds that in the code. */
  readonly against: string
}
