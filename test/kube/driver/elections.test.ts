/** Two processes and one Lease on a real API server. */
import t, { type Test } from 'tap'
import type { KubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { eventually } from '../../support/eventually.ts'
import { silentProxy } from '../../support/silent-proxy.ts'
import type { ControlPlane } from '../support/control-plane.ts'
import { kubeProgramsMissing } from '../support/kube-programs.ts'
import { writeKubeconfig } from '../support/kubeconfig-file.ts'
import { open, startApiServer } from './api-server.ts'

t.setTimeout(600_000)

interface Term {
  readonly who: string
  readonly from: number
  to: number | undefined
}

function candidate(api: KubeApi, who: string, terms: Term[], signal: AbortSignal): Promise<void> {
  return api.elect(
    { name: 'sealane-agent', identity: who },
    async (office) => {
      const term: Term = { who, from: performance.now(), to: undefined }
      terms.push(term)
      await new Promise<void>((resolve) => office.addEventListener('abort', () => resolve()))
      term.to = performance.now()
    },
    signal,
  )
}

const leads = (terms: readonly Term[], who: string): boolean =>
  terms.some((term) => term.who === who && term.to === undefined)

async function throughProxy(t: Test, plane: ControlPlane) {
  const proxy = await silentProxy(t, { host: '127.0.0.1', port: Number(new URL(plane.url).port) })
  const credentials = await plane.ca.issue({ name: 'kubernetes-admin', groups: ['system:masters'] })
  const url = `https://127.0.0.1:${proxy.port}`
  const path = `${plane.kubeconfig}-${proxy.port}`
  const kubeconfig = writeKubeconfig(path, { cluster: 'c1', user: 'a', url, ca: plane.ca.certificate, credentials })
  return { proxy, ...(await open(t, { kubeconfig })) }
}

t.test('two candidates', { skip: kubeProgramsMissing() ?? false }, async (t) => {
  const plane = await startApiServer(t)

  await t.test('with release the next one leads within 5 s', async (t) => {
    const terms: Term[] = []
    const [a, b] = [new AbortController(), new AbortController()]
    const [first, second] = [await open(t, plane), await open(t, plane)]
    const all = [candidate(first.api, 'a', terms, a.signal)]
    await eventually(() => leads(terms, 'a'))
    all.push(candidate(second.api, 'b', terms, b.signal))
    await eventually(() => second.logger.messages('info').includes('a is leading'))
    const stopped = performance.now()
    a.abort()
    await eventually(() => leads(terms, 'b'), { deadlineMs: 5000 })
    t.comment(`leading ${Math.round(performance.now() - stopped)} ms after the stop`)
    b.abort()
    await Promise.all(all)
  })

  await t.test('without release within 15 s, and never two at once', async (t) => {
    const terms: Term[] = []
    const stop = new AbortController()
    const first = await throughProxy(t, plane)
    const second = await open(t, plane)
    const all = [candidate(first.api, 'a', terms, stop.signal)]
    await eventually(() => leads(terms, 'a'))
    all.push(candidate(second.api, 'b', terms, stop.signal))
    await eventually(() => second.logger.messages('info').includes('a is leading'))
    first.proxy.silence(true)
    const silent = performance.now()
    await eventually(() => leads(terms, 'b'), { deadlineMs: 15_000 })
    t.comment(`leading ${Math.round(performance.now() - silent)} ms after the silence`)
    const [old, next] = terms
    t.ok((old?.to ?? Infinity) < (next?.from ?? 0), 'the old leader had stopped by itself')
    stop.abort()
    await Promise.all(all)
  })

  await t.test('an API server that is restarted deposes nobody for longer than it is away', async (t) => {
    const terms: Term[] = []
    const stop = new AbortController()
    const [first, second] = [await open(t, plane), await open(t, plane)]
    const all = [candidate(first.api, 'a', terms, stop.signal), candidate(second.api, 'b', terms, stop.signal)]
    await eventually(() => terms.length > 0)
    await plane.restart('kube-apiserver')
    await eventually(() => terms.some((term) => term.to === undefined), { deadlineMs: 30_000 })
    const ended = [...terms].sort((x, y) => x.from - y.from)
    for (const [i, term] of ended.entries()) {
      const following = ended[i + 1]
      if (following !== undefined) t.ok((term.to ?? Infinity) <= following.from, 'one after the other')
    }
    stop.abort()
    await Promise.all(all)
  })
})
