/** The Kubernetes driver passes the suite of all ClusterApi drivers, on a real API server. */
import t from 'tap'
import { kindPath } from '../../../kubeapi/kube/kinds.ts'
import { clusterApiCompliance } from '../../compliance/cluster-api.ts'
import { kubeProgramsMissing } from '../support/kube-programs.ts'
import { empty, open, put, startApiServer } from './api-server.ts'

interface Event {
  readonly type: string
  readonly reason: string
  readonly note: string
}

t.setTimeout(600_000)

t.test('the compliance suite', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const plane = await startApiServer(t)
  const { api: server } = plane
  // The API server's own Service always exists.
  const selectors = { Service: { fieldSelector: 'metadata.namespace!=default' } }
  clusterApiCompliance(t, async (t) => {
    await empty(server)
    return {
      api: (await open(t, { ...plane, selectors })).api,
      other: (await open(t, { ...plane, selectors })).api,
      put: (object) => put(server, object),
      drop: (kind, name, namespace) => server.delete(kindPath(kind, namespace, name)),
      reported: async () => {
        const events = await server.list<Event>('/apis/events.k8s.io/v1/namespaces/shop/events')
        return events.map(({ type, reason, note }) => `${type} ${reason}: ${note}`)
      },
      differences: { namespacesAreMade: true, oneLayer: true, servicesWithoutGeneration: true },
    }
  })
})
