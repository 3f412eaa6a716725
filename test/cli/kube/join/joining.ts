/** Runs a whole join on a cluster in memory. */
import { type JoinClusterInit, joinCluster } from '../../../../cli/cluster/join-cluster.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { parseClusterId } from '../../../../model/ids.ts'
import { createJoinToken } from '../../../../protocol/identity/token.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { identityParts } from '../../../support/identity-parts.ts'
import { InstallingAdmin } from '../../../support/installing-admin.ts'
import { nodeObject } from '../../../support/objects/node-objects.ts'
import { clusterObject } from '../../../support/objects/cluster-objects.ts'

export const [OURS, SYSTEM] = ['sealane.io/v1alpha1', 'sealane-system']
export const CARE = { force: false }
/** The labels of Cluster objects that the agent writes once it has the members of the clusterset. */
export const MIRRORED = { 'app.kubernetes.io/managed-by': 'sealane' }

export function node(name: string, ready: 'True' | 'Unknown'): ManifestObject {
  const conditions = [{ type: 'Ready', status: ready }]
  return { ...nodeObject(name), status: { conditions } }
}

export function cluster(id: string, silent = false): ManifestObject {
  const said = {
    type: 'InContact',
    status: 'False',
    message: 'the cluster has had no connection to the broker since noon',
  }
  const status = { conditions: silent ? [said] : [] }
  return { ...clusterObject({ id }, { metadata: { labels: MIRRORED } }), spec: { id }, status }
}

export function gateway(...up: readonly string[]): ManifestObject {
  const connections = up.map((id) => ({ cluster: id, state: 'up', message: '' }))
  return {
    apiVersion: OURS,
    kind: 'Gateway',
    metadata: { name: 'n1' },
    spec: {},
    status: { lanes: [{ lane: 0 }], connections },
  }
}

export const MEMBERSHIP: ManifestObject = {
  apiVersion: OURS,
  kind: 'Membership',
  metadata: { name: 'self' },
  spec: { clusterId: 'paris' },
}

/** Returns the data of the identity Secret. */
export async function secretParts(givenAtMs: number): Promise<Readonly<Record<string, string>>> {
  const parts = Object.entries(await identityParts('demo', 'paris', givenAtMs))
  return Object.fromEntries(parts.map(([name, text]) => [name, Buffer.from(text).toString('base64')]))
}

export const secret = (data: Readonly<Record<string, string>>): ManifestObject => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'sealane-identity', namespace: SYSTEM },
  data,
})

/** Returns the object; the cluster's own Cluster object also names the known members, which are those among `all`. */
export function withKnownMembers(object: ManifestObject, all: readonly ManifestObject[]): ManifestObject {
  if (object.kind !== 'Cluster' || object.metadata.name !== 'paris') return object
  const ids = all.filter(({ kind }) => kind === 'Cluster').map(({ metadata }) => metadata.name)
  const annotations = { 'sealane.io/known-members': ids.sort().join() }
  return { ...object, metadata: { ...object.metadata, annotations } }
}

export async function join(
  objects: readonly ManifestObject[],
  change: (admin: InstallingAdmin) => void = () => undefined,
  more: Partial<JoinClusterInit> = {},
) {
  const given = objects.some(({ kind }) => kind === 'Membership') ? [] : [MEMBERSHIP]
  const admin = new InstallingAdmin([...given, ...objects].map((object) => withKnownMembers(object, objects)))
  const clock = new FakeClock()
  admin.identity = await secretParts(clock.now())
  change(admin)
  let said = ''
  const expiresAtMs = clock.now() + 60_000
  const init: JoinClusterInit = {
    token: createJoinToken({
      addresses: ['192.0.2.1:7443'],
      caPin: 'a'.repeat(64),
      clusterset: 'demo',
      expiresAtMs,
    }).text(),
    chosen: {
      clusterId: parseClusterId('paris'),
      podCIDRs: ['10.42.0.0/16'],
      serviceCIDRs: ['10.43.0.0/16'],
      labels: {},
      gateways: [{ node: 'n1' }],
    },
    values: DEFAULT_VALUES,
    dryRun: false,
    force: true,
    flags: '--context c1',
    timeoutMs: 0,
    ask: undefined,
    clock,
    signal: new AbortController().signal,
    say: (text) => void (said += text),
    ...more,
  }
  const done = joinCluster({ admin, dynamic: admin.dynamic }, init)
  const outcome = await done.catch((error: unknown) => error as Error)
  const reported = said
    .split('\n')
    .filter((line) => /^(joined|already joined|all parts|lanes|cluster DNS forwards|not waiting)/.test(line))
  return { admin, done, reported, outcome, said }
}
