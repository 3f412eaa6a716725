/** Facts about the machine that the command runs on. */
import { hostname } from 'node:os'
import type { Fact } from '../../../explain/facts/facts.ts'
import type { Node } from '../../../model/model.ts'
import { askFor } from '../ask.ts'

export interface HostProbeInit {
  /** The name of this machine's Node. By default the one of `nodes` that has an address of this machine. */
  readonly node?: string
  /** The Nodes of the site. */
  readonly nodes: () => readonly Node[]
  /** The directories whose disks are examined. */
  readonly folders: readonly string[]
}

const MS = 4000
const SOURCE = 'the kernel of this machine'

export function probeHost(init: HostProbeInit, signal: AbortSignal): Promise<readonly Fact[]> {
  const question = { what: 'Host this-machine', source: SOURCE, needed: false, ms: MS }
  return askFor({ ...question, ask: (limited) => hostFacts(init, limited) }, signal)
}

async function hostFacts({ node, nodes, folders }: HostProbeInit, signal: AbortSignal): Promise<readonly Fact[]> {
  const { lookAtHost } = await import('../../../compose/look.ts')
  const { look, troubles } = await lookAtHost({ folders, timeoutMs: MS - 500 }, signal)
  const at = new Date().toISOString()
  const { firewall, routes, connections, ...rest } = look
  const host = {
    node: node ?? nodeOf(nodes(), look.devices) ?? hostname(),
    ...rest,
    sysctls: { ...rest.sysctls },
    deviceSettings: [...rest.deviceSettings],
    disks: [...rest.disks],
    cutOffFromSelf: [...rest.cutOffFromSelf],
  }
  const item = JSON.parse(JSON.stringify({ ...host, firewall, routes, connections })) as never
  return [
    { t: 'probe', kind: 'host', source: SOURCE, at, items: [item] },
    ...troubles.map(({ what, message }): Fact => {
      const fact = { t: 'unanswered', what: `${what} of this machine`, source: SOURCE, at, needed: false } as const
      // The tools report missing rights in different words.
      const isRight = /not permitted|must be root|permission denied/i.test(message)
      return { ...fact, reason: isRight ? 'RightMissing' : 'NotAnswered', message }
    }),
  ]
}

function nodeOf(
  nodes: readonly Node[],
  devices: readonly { readonly addresses: readonly string[] }[],
): string | undefined {
  const own = new Set(devices.flatMap(({ addresses }) => addresses))
  return nodes.find(({ status }) =>
    status?.addresses?.some(({ type, address }) => type === 'InternalIP' && own.has(address)),
  )?.metadata.name
}
