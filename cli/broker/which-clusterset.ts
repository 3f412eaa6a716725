/** `--clusterset`: which clusterset of a broker a command is about. */

export interface WhichClusterset {
  readonly state: string
  /** Absent: the broker's own. */
  readonly clusterset?: string | undefined
}

/** The state directory of the clusterset. Throws RefusedError where the broker has none of this name. */
export async function stateOf({ state, clusterset }: WhichClusterset): Promise<string> {
  if (clusterset === undefined) return state
  // It brings the broker's database along.
  const { clustersetState } = await import('../../compose/broker/clustersets.ts')
  return clustersetState(state, clusterset)
}

/** The same, for a command that somebody types. */
export function clustersetFlag(clusterset: string | undefined): string {
  return clusterset === undefined ? '' : ` --clusterset ${clusterset}`
}

/** The same, for a command in the broker's pod. */
export function clustersetWords(clusterset: string | undefined): readonly string[] {
  return clusterset === undefined ? [] : ['--clusterset', clusterset]
}
