import t from 'tap'
import { withImage, withStatus } from '../../../../cli/installation/values-options.ts'
import { DEFAULT_VALUES } from '../../../../install/values/install-values.ts'
import { runCli } from '../../run-cli.ts'

t.test('flags become values', (t) => {
  t.equal(withStatus(DEFAULT_VALUES, {}), DEFAULT_VALUES, 'nothing said, nothing changed')
  const node = withStatus(DEFAULT_VALUES, { statusListen: 'node' })
  t.equal(node.gateway.statusListen, 'node')
  t.equal(node.routeagent.statusListen, 'node')
  t.same(withStatus(node, { statusListen: 'loopback' }), DEFAULT_VALUES, 'and nothing else')
  t.equal(withStatus(node, {}), node, 'what was said before stays')
  const image = withImage(DEFAULT_VALUES, {
    image: 'registry.example.org:5000/net/sealane:2',
    imagePullPolicy: 'Never',
  })
  t.same(image.image, { repository: 'registry.example.org:5000/net/sealane', tag: '2', pullPolicy: 'Never' })
  t.end()
})

t.test('a place that is none', async (t) => {
  const { code, stderr } = await runCli(['join', '--context', 'c1', '--status-listen', '0.0.0.0:9472'])
  t.equal(code, 2)
  t.match(stderr, '--status-listen "0.0.0.0:9472": expected loopback, node')
})

t.test('for a site without Kubernetes it says nothing', async (t) => {
  const { code, stderr } = await runCli(['join', '--token', 'x', '--status-listen', 'node'])
  t.equal(code, 2)
  t.match(stderr, '--status-listen: only for a Kubernetes cluster, with --context or --kubeconfig')
})
