/** Of the agents of a site without Kubernetes one acts: the one that holds the Lease in the state folder. */
import { randomBytes } from 'node:crypto'
import { AGENT_LEASE } from '../install/names.ts'
import { type ClusterApi, ClusterApiError } from '../kubeapi/cluster-api.ts'
import { Election, type ElectionDeps } from '../kubeapi/election.ts'
import type { LeaseStore } from '../kubeapi/lease-store.ts'
import type { ElectionTiming } from '../model/lanes/lease-duration.ts'
import { untilLeft } from './until-left.ts'

export interface SiteAgentsInit extends Partial<ElectionTiming> {
  readonly node: string
  /** No other node of the site has an agent: it also acts where there can be no Leases. */
  readonly alone: boolean
}

/**
 * Calls `act` while this process is the one that acts. A process that ended without a word is not waited for where its
 * node starts another one. Resolves after the signal, when `act` ends by itself, or when the site has left.
 */
export async function actInTurn(
  deps: Omit<ElectionDeps, 'leader'> & { readonly api: Pick<ClusterApi, 'cache'> },
  { node, alone, ...timing }: SiteAgentsInit,
  act: (signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  // No name of a Node has a '_'.
  const ofNode = `${node}_`
  const identity = `${ofNode}${randomBytes(4).toString('hex')}`
  const replaces = (holder: string): boolean => holder.startsWith(ofNode)
  const over = new AbortController()
  const without = new AbortController()
  const leases: LeaseStore = {
    read: (name, until) => deps.leases.read(name, until),
    write: async (lease, until) => {
      try {
        return await deps.leases.write(lease, until)
      } catch (error) {
        if (alone && error instanceof ClusterApiError && error.code === 'Forbidden') without.abort(error)
        throw error
      }
    },
  }
  const election = new Election(
    { ...deps, leases, leader: UNCOUNTED },
    { name: AGENT_LEASE, identity, replaces, ...timing },
  )
  const left = untilLeft(deps.api, signal)
  let acts = false
  // Who acts takes out what it wrote, and ends by itself.
  const look = (): void => {
    if (left.aborted && !acts) over.abort(left.reason)
  }
  left.addEventListener('abort', look)
  look()
  const inOffice = async (office: AbortSignal): Promise<void> => {
    acts = true
    try {
      await act(office)
    } finally {
      acts = false
      look()
    }
  }
  await election.run(inOffice, AbortSignal.any([signal, over.signal, without.signal]))
  if (without.signal.aborted) await act(signal)
}

/** A site's state shows who leads: file leases/sealane-agent. */
const UNCOUNTED = { set: (): void => undefined }
