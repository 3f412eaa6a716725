import t from 'tap'
import { type ContactWorld, planContact } from '../../../agent/cluster/plan-contact.ts'
import type { Lease } from '../../../model/objects.ts'

const MINUTE = 60_000
const NOW = Date.parse('2026-11-20T12:00:00Z')

/** Returns a Lease that was renewed this many minutes ago. A released Lease has no holder. */
function lease(cluster: string, minutesAgo: number, released = false): Lease {
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: {
      name: `sealane-cluster-${cluster}`,
      namespace: 'sealane-system',
      labels: { 'app.kubernetes.io/managed-by': 'sealane', 'multicluster.kubernetes.io/source-cluster': cluster },
    },
    spec: {
      ...(released ? {} : { holderIdentity: cluster }),
      leaseDurationSeconds: 600,
      acquireTime: '2026-11-01T00:00:00.000000Z',
      renewTime: new Date(NOW - minutesAgo * MINUTE).toISOString().replace('Z', '000Z'),
    },
  }
}

function world(change: Partial<ContactWorld>): ContactWorld {
  return {
    nowMs: NOW,
    durationMs: 10 * MINUTE,
    namespace: 'sealane-system',
    clusters: ['milano'],
    leases: [],
    silent: undefined,
    connected: new Set(),
    ...change,
  }
}

function show(change: Partial<ContactWorld>): string {
  const { apply, remove, expired } = planContact(world(change))
  const applied = apply.map(({ spec }) => {
    const renewed = spec?.renewTime === '2026-11-20T12:00:00.000000Z' ? 'renewed' : 'not renewed'
    return `${spec?.holderIdentity ?? 'nobody'} ${renewed}`
  })
  const removed = remove.map(({ metadata }) => `removes ${metadata.name}`)
  return [...applied, ...removed, ...expired.map((cluster) => `${cluster} is dead`)].join(', ')
}

t.test('who is dead, and what becomes of the leases', async (t) => {
  const heard = new Map<string, number>()
  const silent = (minutes: number): ReadonlyMap<string, number> => new Map([['milano', minutes * MINUTE]])
  const rows: [name: string, change: Partial<ContactWorld>, want: string][] = [
    ['a new cluster that is heard', { silent: heard }, 'milano renewed'],
    ['a new cluster that is not: its time begins', { silent: silent(60) }, 'milano renewed'],
    ['heard, renewed a moment ago', { silent: heard, leases: [lease('milano', 0.5)] }, ''],
    ['heard, due', { silent: heard, leases: [lease('milano', 1)] }, 'milano renewed'],
    ['heard after a long absence of ours', { silent: heard, leases: [lease('milano', 1000)] }, 'milano renewed'],
    ['a renewal from the future', { silent: heard, leases: [lease('milano', -5)] }, 'milano renewed'],
    ['silent for a while', { silent: silent(9), leases: [lease('milano', 9)] }, ''],
    ['silent too long', { silent: silent(10), leases: [lease('milano', 10)] }, 'nobody not renewed, milano is dead'],
    [
      'our lease has run out, the broker has just begun to count',
      { silent: silent(1), leases: [lease('milano', 30)] },
      '',
    ],
    ['the broker counts long, we heard it lately', { silent: silent(30), leases: [lease('milano', 2)] }, ''],
    ['we are cut off: nothing is known', { silent: undefined, leases: [lease('milano', 1000)] }, ''],
    [
      'a lane is up, whatever the broker says',
      { silent: silent(30), leases: [lease('milano', 30)], connected: new Set(['milano']) },
      'milano renewed',
    ],
    ['stays dead over a restart', { silent: undefined, leases: [lease('milano', 30, true)] }, 'milano is dead'],
    ['stays dead while silent', { silent: silent(1), leases: [lease('milano', 30, true)] }, 'milano is dead'],
    ['comes back', { silent: heard, leases: [lease('milano', 30, true)] }, 'milano renewed'],
    ['has left', { clusters: [], leases: [lease('milano', 1)] }, 'removes sealane-cluster-milano'],
    [
      'leases of others are left alone',
      {
        clusters: [],
        leases: [{ ...lease('milano', 1), metadata: { name: 'sealane-agent', namespace: 'sealane-system' } }],
      },
      '',
    ],
    [
      'a damaged lease',
      { silent: silent(30), leases: [{ ...lease('milano', 1), spec: { holderIdentity: 'milano' } }] },
      'nobody not renewed, milano is dead',
    ],
  ]
  for (const [name, change, want] of rows) t.equal(show(change), want, name)
})

t.test('the lease in full', async (t) => {
  const { apply } = planContact(world({ silent: new Map(), leases: [lease('milano', 5)] }))
  t.strictSame(apply, [
    {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: {
        name: 'sealane-cluster-milano',
        namespace: 'sealane-system',
        labels: { 'app.kubernetes.io/managed-by': 'sealane', 'multicluster.kubernetes.io/source-cluster': 'milano' },
      },
      spec: {
        holderIdentity: 'milano',
        leaseDurationSeconds: 600,
        acquireTime: '2026-11-01T00:00:00.000000Z',
        renewTime: '2026-11-20T12:00:00.000000Z',
      },
    },
  ])
})
