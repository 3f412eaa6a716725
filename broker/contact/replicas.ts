/** The other brokers of the same store. */
export interface Replicas {
  /** Whether a member has a stream open at one of them. */
  isConnectedElsewhere(cluster: string): boolean
  /** Takes the members that have a stream open here. */
  report(members: readonly string[]): void
}
