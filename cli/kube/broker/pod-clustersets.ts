/** The clustersets of a broker that runs on a cluster: the same commands, in its pod. */
import type { ClustersetSummary, CreateClustersetInit } from '../../../compose/parts/broker-clustersets.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { type AskBroker, askForJson } from './pod-broker.ts'

/** What can be done with them over any distance. */
export interface Clustersets {
  list(): Promise<ClustersetSummary[]>
  create(init: CreateClustersetInit): Promise<Created>
  remove(name: string, init: { readonly force: boolean }): Promise<{ readonly repeated: boolean }>
}

export interface Created extends ClustersetSummary {
  readonly repeated: boolean
  /** A broker has opened it: tokens can be made. */
  readonly opened: boolean
}

/** Throws what askForJson() throws. */
export function podClustersets(ask: AskBroker): Clustersets {
  return {
    list: async () => {
      const words = ['broker', 'clusterset', 'list']
      try {
        return (await askForJson<{ readonly items: ClustersetSummary[] }>(ask, words)).items
      } catch (error) {
        // A broker of an earlier release has its own, and no other.
        if (error instanceof UserError && /unknown command/.test(error.message)) return []
        throw error
      }
    },
    create: ({ name, globalRange, clustersetIpRange }) => {
      const ranges = [
        ...(globalRange === undefined ? [] : ['--global-range', globalRange]),
        ...(clustersetIpRange === undefined ? [] : ['--clusterset-ip-range', clustersetIpRange]),
      ]
      return askForJson<Created>(ask, ['broker', 'clusterset', 'create', name, ...ranges])
    },
    remove: (name, { force }) =>
      askForJson<{ readonly repeated: boolean }>(ask, [
        ...['broker', 'clusterset', 'remove', name],
        ...(force ? ['--force'] : []),
      ]),
  }
}
