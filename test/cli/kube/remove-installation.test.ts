/** What leaving takes out. */
import t from 'tap'
import { removeInstallation } from '../../../cli/kube/remove-installation.ts'
import { calicoPools } from '../../../cli/discovery/calico-pools.ts'
import { discover } from '../../../cli/discovery/discover.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { MemoryAdmin } from '../../support/memory-admin.ts'
import { fixture } from '../discovery/support/fixtures.ts'

t.test("Calico's pools for other clusters go by their label, the user's stay", async (t) => {
  const apiVersion = 'crd.projectcalico.org/v1'
  const own = { apiVersion, kind: 'IPPool', metadata: { name: 'default-ipv4-ippool' }, spec: { cidr: '10.1.0.0/16' } }
  const pools = calicoPools(['244.0.0.0/8', '10.52.0.0/16'], apiVersion) as unknown as ManifestObject[]
  const admin = new MemoryAdmin([own, ...pools])
  let said = ''
  await removeInstallation(admin, discover(fixture('kubeadm-calico-vxlan')), {
    timeoutMs: 1000,
    force: false,
    clock: new FakeClock(),
    signal: new AbortController().signal,
    say: (text) => void (said += text),
  })
  t.strictSame(
    (await admin.list(apiVersion, 'IPPool', {})).map(({ metadata }) => metadata.name),
    ['default-ipv4-ippool'],
  )
  t.equal(said, '  removed   IPPool sealane-10-52-0-0-16\n  removed   IPPool sealane-244-0-0-0-8\n')
})
