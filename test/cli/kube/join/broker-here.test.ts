/**
 * A member lost its identity, and the broker in its own cluster issues a new one. The command finds the broker in
 * either form.
 */
import t, { type Test } from 'tap'
import { brokerHere } from '../../../../cli/cluster/run-join.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { selectorLabels } from '../../../../install/values/names.ts'
import type { MadeToken, MemberSummary } from '../../../../protocol/admin/admin-api.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { dialSocket, servedAdmin } from '../../../support/served-admin.ts'

const { signal } = new AbortController()
const ASKED = { cluster: 'c1', clusterset: undefined, flags: '--context c1' }
const REPLICAS: InstallValues = {
  ...DEFAULT_VALUES,
  broker: { ...DEFAULT_VALUES.broker, store: 'etcd', etcd: { ...DEFAULT_VALUES.broker.etcd, url: 'https://e:2379' } },
}
const POD: ManifestObject = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'sealane-broker-0', namespace: 'sealane-broker', labels: selectorLabels('broker') },
  status: { conditions: [{ type: 'Ready', status: 'True' }] },
}

/** Returns a cluster with a broker that has the member c1. */
async function hub(t: Test, values: InstallValues): Promise<MemoryAdmin> {
  const admin = new MemoryAdmin([...planBroker(values).flatMap(({ objects }) => objects), POD])
  const socket = await servedAdmin(t, {
    members: () => Promise.resolve([{ id: 'c1', state: 'silent' } as MemberSummary]),
    rekey: () => Promise.resolve({ id: 't1', text: 'a new token' } as MadeToken),
  })
  admin.dial = () => dialSocket(socket)
  return admin
}

t.test('the broker in the same cluster gives a member a new identity, whatever its form', async (t) => {
  for (const [form, values, kind] of [
    ['a volume of its own', DEFAULT_VALUES, 'StatefulSet'],
    ['replicas', REPLICAS, 'Deployment'],
  ] as const) {
    const admin = await hub(t, values)
    const ref = { apiVersion: 'apps/v1', kind, namespace: 'sealane-broker', name: 'sealane-broker' }
    t.ok(await admin.get(ref), `${form}: it is a ${kind}`)
    const broker = await brokerHere(admin, ASKED, signal)
    t.equal(await broker?.rekey(), 'a new token', form)
    t.equal(await brokerHere(admin, { ...ASKED, cluster: 'c2' }, signal), undefined, `${form}: no member`)
  }
})

t.test('a cluster without a broker has none to ask', async (t) => {
  const admin = new MemoryAdmin()
  t.equal(await brokerHere(admin, ASKED, signal), undefined)
  t.same(admin.done, [])
})
