/** The agent may read and update exactly the ConfigMaps that were wired. */
import t from 'tap'
import { clusterDnsAccess } from '../../../install/policies/member-access.ts'

t.test('one Role in each namespace, with the names of its ConfigMaps', async (t) => {
  const maps = [
    { namespace: 'kube-system', name: 'coredns' },
    { namespace: 'dns', name: 'cache' },
    { namespace: 'kube-system', name: 'a' },
    { namespace: 'kube-system', name: 'a' },
  ]
  const objects = clusterDnsAccess(maps, 'sealane-system')
  t.same(
    objects.map(({ kind, metadata }) => `${kind} ${metadata.namespace ?? ''}/${metadata.name}`),
    ['dns', 'kube-system'].flatMap((namespace) =>
      ['Role', 'RoleBinding'].map((kind) => `${kind} ${namespace}/sealane-agent-cluster-dns`),
    ),
  )
  const rule = { apiGroups: [''], resources: ['configmaps'], verbs: ['get', 'update'] }
  t.same(objects[0]?.['rules'], [{ ...rule, resourceNames: ['cache'] }])
  t.same(objects[2]?.['rules'], [{ ...rule, resourceNames: ['a', 'coredns'] }])
  t.match(objects[3]?.['subjects'], [{ kind: 'ServiceAccount', name: 'sealane-agent', namespace: 'sealane-system' }])
  t.same(clusterDnsAccess([], 'sealane-system'), [])
})
