/** The gateways of a site without Kubernetes, one of which the check `failover` drains and takes back. */
import { LABEL_DRAIN } from '../../../model/lanes/lanes.ts'
import type { ManifestObject } from '../../../install/values/values.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { type DrainInit, type DrainSide, freeGateway } from './check-failover.ts'

type SiteObjects = Pick<ClusterAdmin, 'get' | 'list' | 'merge'>

export interface SiteGatewaysInit {
  /** The id of the site. */
  readonly id: string
  readonly admin: SiteObjects
  /** The flags that name the site in a command: ` --site site.yaml`. */
  readonly flags: string
  readonly say: (text: string) => void
  readonly drain: (admin: SiteObjects, node: string, init: DrainInit) => Promise<unknown>
  readonly undrain: (admin: SiteObjects, node: string, signal: AbortSignal) => Promise<unknown>
}

const UNDRAIN_MS = 20_000

export function siteGateways({ id, admin, flags, say, drain, undrain }: SiteGatewaysInit): DrainSide {
  const toEnd = (node: string): string => `sealane gateway undrain ${node}${flags}`
  const isDrained = (node: ManifestObject | undefined): boolean => node?.metadata.labels?.[LABEL_DRAIN] !== undefined
  return {
    id,
    freeGateway: (signal) => freeGateway(admin, signal),
    drain: (node, init) => drain(admin, node, init),
    // A site has no probe object that a note could stand on.
    noteDrained: (node) => {
      say(`${id}: if this command is killed now, end the drain with: ${toEnd(node)}\n`)
      return Promise.resolve()
    },
    takeBack: async (node) => {
      const limited = AbortSignal.timeout(UNDRAIN_MS)
      try {
        if (isDrained(await admin.get({ apiVersion: 'v1', kind: 'Node', name: node }, limited))) {
          await undrain(admin, node, limited)
        }
        return true
      } catch (error) {
        say(`${id}: gateway ${node} stays drained: ${messageOf(error)}\n  to end that: ${toEnd(node)}\n`)
        return false
      }
    },
  }
}
