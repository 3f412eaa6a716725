/** The advice that follows from a discovery. Whole texts are in test/golden/discovery. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { advice, hindrances } from '../../../../cli/discovery/advice/advice.ts'
import { calicoPools } from '../../../../cli/discovery/advice/advice-cni.ts'
import { CNIS, DISTRIBUTIONS, PROXY_MODES } from '../../../../cli/discovery/evidence.ts'
import { DATA_PATH, type DataPath } from '../../../../cli/discovery/advice/advice-row.ts'
import { parseYaml } from '../../../../kubeapi/yaml.ts'
import { discover } from '../../../../cli/discovery/discover.ts'
import type { ClusterSnapshot } from '../../../../cli/discovery/snapshot.ts'
import { ROOT } from '../../../support/source-tree.ts'
import { fixture } from '../support/fixtures.ts'

const ABLE: DataPath = {
  rulesBeforeThoseOfPods: true,
  knowsRangesOfCnis: true,
  nodesMayBeInPodCidrs: true,
  keepsSourceBefore90: true,
}
const UNABLE: DataPath = {
  rulesBeforeThoseOfPods: false,
  knowsRangesOfCnis: false,
  nodesMayBeInPodCidrs: false,
  keepsSourceBefore90: false,
}

function given(name: string, dataPath: DataPath = DATA_PATH): string[] {
  return advice(discover(fixture(name)), { dataPath }).map(({ id, kind }) => `${kind} ${id}`)
}

t.test('what the data path cannot do is said, and no longer once it can', async (t) => {
  t.has(given('eks-vpc-cni', UNABLE), ['unsupported cloud-addresses'])
  t.notOk(given('eks-vpc-cni', ABLE).some((text) => text.startsWith('unsupported')))
  t.ok(given('kubeadm-calico-vxlan', UNABLE).includes('instruction own-pod-ranges'))
  t.notOk(given('kubeadm-calico-vxlan', ABLE).includes('instruction own-pod-ranges'))
  t.equal(hindrances(advice(discover(fixture('eks-vpc-cni')), { dataPath: UNABLE })).length, 1)
})

t.test('plain clusters need nothing, whatever the data path', async (t) => {
  for (const name of ['kubeadm-flannel', 'k3s', 'rke2-canal', 'kind', 'kubeadm-kube-router', 'kubeadm-cilium']) {
    for (const dataPath of [ABLE, UNABLE]) {
      t.ok(
        given(name, dataPath).every((text) => text.startsWith('nothing')),
        name,
      )
    }
  }
})

t.test('firewalls are to be opened for the port that the overlay has', async (t) => {
  for (const name of ['openshift-ovn', 'gke', 'eks-vpc-cni', 'aks-overlay']) {
    const text =
      advice(discover(fixture(name)), { overlayPort: 51_900 }).find(({ id }) => id === 'open-ports')?.text ?? ''
    t.match(text, 'UDP 51900', name)
    t.notMatch(text, '4810', name)
  }
})

t.test('Calico gets pools that give no addresses, by the API that it has', async (t) => {
  const row = (name: string) => advice(discover(fixture(name))).find(({ id }) => id === 'calico-pools')
  t.equal(
    row('kubeadm-calico-vxlan')?.text,
    'An IPPool that gives out no addresses tells Calico that 244.0.0.0/8, the range of translated ' +
      'clusters, belongs to pods. This is a precaution: Sealane’s rule keeps source addresses before Calico ' +
      'masquerades, also towards clusters that keep their own ranges. Those ranges have no IPPool; docs/reference.md ' +
      'has one to apply.',
  )
  const pool = {
    apiVersion: 'crd.projectcalico.org/v1',
    kind: 'IPPool',
    metadata: { name: 'sealane-244-0-0-0-8', labels: { 'app.kubernetes.io/managed-by': 'sealane' } },
    spec: {
      cidr: '244.0.0.0/8',
      blockSize: 26,
      disabled: true,
      disableBGPExport: true,
      natOutgoing: false,
      ipipMode: 'Never',
      vxlanMode: 'Never',
      nodeSelector: '!all()',
    },
  }
  t.same(row('kubeadm-calico-vxlan')?.objects, [pool])
  t.same(row('kubeadm-calico-operator')?.objects, [{ ...pool, apiVersion: 'projectcalico.org/v3' }])
  t.same(
    calicoPools(['fd00:1::/48', '10.8.0.0/27'], 'x').map((one) => [one.metadata.name, one.spec.blockSize]),
    [
      ['sealane-10-8-0-0-27', 27],
      ['sealane-fd00-1-48', 122],
    ],
  )
})

t.test('docs/reference.md shows the pool for a cluster that keeps its own ranges, as we would make it', async (t) => {
  const text = readFileSync(join(ROOT, 'docs', 'reference.md'), 'utf8')
  const shown = /^apiVersion: projectcalico\.org\/v3\nkind: IPPool\n[^`]+/m.exec(text)?.[0] ?? ''
  t.same(parseYaml(shown), calicoPools(['10.52.0.0/16'], 'projectcalico.org/v3')[0])
})

t.test('others that write the same objects stop a join; others that do not are only told', async (t) => {
  const flannel = fixture('kubeadm-flannel')
  const withCrd = (crd: string): ClusterSnapshot => ({ ...flannel, crds: [crd] })
  t.match(advice(discover(withCrd('submariners.submariner.io')))[0], {
    id: 'other-mcs-owner',
    kind: 'unsupported',
    about: 'Submariner',
  })
  t.ok(advice(discover(withCrd('sites.skupper.io'))).every(({ kind }) => kind === 'nothing'))
})

t.test('machines and addresses', async (t) => {
  const kind = (name: string, id: string): string | undefined =>
    advice(discover(fixture(name))).find((one) => one.id === id)?.kind
  t.equal(kind('eks-vpc-cni', 'eks-fargate'), 'limit')
  t.equal(kind('eks-auto-mode', 'cluster-dns'), 'limit')
  t.equal(kind('kubeadm-antrea', 'dual-stack'), 'limit')
  t.equal(kind('kubeadm-cilium-kube-proxy-free', 'large-pod-cidr'), 'limit')
  t.equal(kind('kubeadm-cilium-kube-proxy-free', 'cilium-devices'), 'instruction')
  t.equal(kind('openshift-ovn', 'open-ports'), 'instruction')
})

t.test('pods without IPv4 cannot be members', async (t) => {
  const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n' }, spec: { podCIDRs: ['fd00:10:244::/64'] } }
  const snapshot = { ...fixture('kubeadm-antrea'), objects: [node] }
  const found = advice(discover(snapshot)).find(({ id }) => id === 'ipv6-only')
  t.equal(found?.kind, 'unsupported')
  t.equal(
    found?.text,
    'Pods have IPv6 addresses only; a member needs IPv4 addresses for its pods as well in this release.',
  )
})

t.test('the most urgent comes first', async (t) => {
  const kinds = advice(discover(fixture('cilium-mesh-eni'))).map((one) => one.kind)
  const order = ['unsupported', 'instruction', 'action', 'limit', 'nothing']
  t.same(
    kinds,
    [...kinds].sort((a, b) => order.indexOf(a) - order.indexOf(b)),
  )
})

t.test('docs/operations.md has a row for each CNI, service proxy and distribution', async (t) => {
  const text = readFileSync(join(ROOT, 'docs', 'operations.md'), 'utf8')
  const cells = text.split('\n').flatMap((line) => (/^\| ([^|]+) \|/.exec(line)?.[1] ?? '').toLowerCase())
  const row = (word: string): boolean => cells.some((cell) => cell.includes(word.replace(/-(?=vpc|sdn)/, ' ')))
  for (const word of [...CNIS, ...PROXY_MODES, ...DISTRIBUTIONS].filter((one) => one !== 'unknown')) {
    t.ok(row(word === 'aws-vpc' ? 'amazon vpc' : word), word)
  }
})
