/** The API server behind a proxy that the kubeconfig or the environment names: requests, watches and pod sockets. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse, stringify } from 'yaml'
import { connectProxy } from '../../../support/connect-proxy.ts'
import { fakeApiServer } from '../../../support/fake-api-server.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { messageOf } from '../../../support/failure.ts'
import { openFake } from '../kube-site.ts'

type Config = { clusters: { name: string; cluster: Record<string, unknown> }[] }

t.test('through a proxy, over HTTP/2 and HTTP/1.1', async (t) => {
  for (const speak of ['h2', 'http1', 'plain'] as const) {
    for (const init of [{ login: 'ana:secret' }, { scheme: 'socks5' as const }]) {
      const server = await fakeApiServer(t, { speak })
      const proxy = await connectProxy(t, init)
      const kubeconfig = join(temporaryFolder(t), 'config')
      const config = parse(readFileSync(server.kubeconfig, 'utf8')) as Config
      for (const one of config.clusters) one.cluster['proxy-url'] = proxy.url
      writeFileSync(kubeconfig, stringify(config))
      const { api } = await openFake(t, server, { kubeconfig })
      await api.dynamic.knows({ apiVersion: 'v1', kind: 'Service' })
      await api.cache('Service').whenSynced(AbortSignal.timeout(5000))
      const { host } = new URL(server.url)
      t.ok(proxy.asked.length > 0 && proxy.asked.every((one) => one === host), `${speak}: ${proxy.asked.join()}`)
      proxy.fault = 'HTTP/1.1 403 Forbidden'
      const { api: late } = await openFake(t, server, { kubeconfig })
      if (init.login === undefined) continue
      const said = await messageOf(late.secrets.read('x'))
      t.match(said, /is unreachable: proxy http:\/\/127\.0\.0\.1:\d+: it does not connect to .* \(status 403\)$/)
      t.notMatch(said, 'secret')
    }
  }
})
