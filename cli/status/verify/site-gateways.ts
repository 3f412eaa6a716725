/** The gateways of a site without Kubernetes, one of which the check `failover` drains and takes back. */
import { LABEL_DRAIN } from '../../../model/lanes/lanes.ts'
import type { ManifestObject } from '../../../install/values/values.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { type DrainInit, type DrainSide, freeGateway } from './check-failover.ts'
import { DRAINED_ANNOTATION, UNTIL_ANNOTATION } from './plan-objects.ts'

type SiteObjects = Pick<ClusterAdmin, 'get' | 'list' | 'merge'>

export interface SiteGatewaysInit {
  /** The id of the site. */
  readonly id: string
  readonly admin: SiteObjects
  /** The flags that name the site in a command: ` --site site.yaml`. */
  readonly flags: string
  readonly say: (text: string) => void
  /** Milliseconds since 1970. */
  readonly now: () => number
  readonly drain: (admin: SiteObjects, node: string, init: DrainInit) => Promise<unknown>
  readonly undrain: (admin: SiteObjects, node: string, signal: AbortSignal) => Promise<unknown>
}

const UNDRAIN_MS = 20_000
/** Longer than a drain, the calls during it and its end take. */
const RUN_MS = 120_000
const NO_NOTE = { [DRAINED_ANNOTATION]: null, [UNTIL_ANNOTATION]: null }

type SiteInit = Omit<SiteGatewaysInit, 'drain'>

const toEnd = (node: string, { flags }: Pick<SiteInit, 'flags'>): string => `sealane gateway undrain ${node}${flags}`

/** A site has no probe object that a note could stand on, so the Node has it. */
function setNote(admin: SiteObjects, node: string, annotations: object, signal: AbortSignal): Promise<unknown> {
  return admin.merge({ apiVersion: 'v1', kind: 'Node', name: node }, { metadata: { annotations } }, signal)
}

/**
 * Ends the drains of runs that were killed, and returns their Nodes. One that cannot be ended is said, as one is that
 * may be of a run that goes on. Rejects if the Nodes cannot be listed.
 */
export async function endLeftDrains(init: SiteInit, signal: AbortSignal): Promise<readonly string[]> {
  const { id, admin, say, now, undrain } = init
  const ended: string[] = []
  for (const { metadata } of await admin.list('v1', 'Node', {}, signal)) {
    const { name, annotations = {} } = metadata
    if (annotations[DRAINED_ANNOTATION] === undefined) continue
    const until = annotations[UNTIL_ANNOTATION] ?? ''
    if (Date.parse(until) > now()) {
      say(`${id}: another run has drained gateway ${name}; if it was killed, end that with: ${toEnd(name, init)}\n`)
      continue
    }
    try {
      await undrain(admin, name, signal)
      await setNote(admin, name, NO_NOTE, signal)
      say(`${id}: ended the drain of gateway ${name}, which a killed run has left\n`)
      ended.push(name)
    } catch (error) {
      signal.throwIfAborted()
      say(`${id}: gateway ${name} stays drained: ${messageOf(error)}\n  to end that: ${toEnd(name, init)}\n`)
    }
  }
  return ended
}

export function siteGateways(init: SiteGatewaysInit): DrainSide {
  const { id, admin, say, now, drain, undrain } = init
  const isDrained = (node: ManifestObject | undefined): boolean => node?.metadata.labels?.[LABEL_DRAIN] !== undefined
  return {
    id,
    freeGateway: (signal) => freeGateway(admin, signal),
    drain: (node, init) => drain(admin, node, init),
    noteDrained: async (node, signal) => {
      const until = new Date(now() + RUN_MS).toISOString()
      await setNote(admin, node, { [DRAINED_ANNOTATION]: node, [UNTIL_ANNOTATION]: until }, signal)
      const later = 'or a run after two minutes does'
      say(`${id}: if this command is killed now, end the drain with: ${toEnd(node, init)}; ${later}\n`)
    },
    takeBack: async (node) => {
      const limited = AbortSignal.timeout(UNDRAIN_MS)
      try {
        if (isDrained(await admin.get({ apiVersion: 'v1', kind: 'Node', name: node }, limited))) {
          await undrain(admin, node, limited)
        }
        await setNote(admin, node, NO_NOTE, limited)
        return true
      } catch (error) {
        say(`${id}: gateway ${node} stays drained: ${messageOf(error)}\n  to end that: ${toEnd(node, init)}\n`)
        return false
      }
    },
  }
}
