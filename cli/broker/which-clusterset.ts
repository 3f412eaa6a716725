/** `--clusterset`: selects the clusterset of a broker that a command is about. */

export interface WhichClusterset {
  readonly state: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
}

/** The state directory of the clusterset. Throws RefusedError if the broker has no clusterset of this name. */
export async function stateOf({ state, clusterset }: WhichClusterset): Promise<string> {
  if (clusterset === undefined) return state
  // Loaded on demand, because this loads the broker's database.
  const { clustersetState } = await import('../../compose/broker/clustersets.ts')
  return clustersetState(state, clusterset)
}

/** The --clusterset option, for a command that the user types. */
export function clustersetFlag(clusterset: string | undefined): string {
  return clusterset === undefined ? '' : ` --clusterset ${clusterset}`
}

/** The --clusterset option, for a command in the broker's pod. */
export function clustersetWords(clusterset: string | undefined): readonly string[] {
  return clusterset === undefined ? [] : ['--clusterset', clusterset]
}
