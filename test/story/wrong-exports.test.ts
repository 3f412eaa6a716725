/**
 * An invalid export says what is wrong in its conditions and in `sealane show exports`; once it is corrected, it is
 * imported. Broker, agents and commands are real. The kube tier's table of exports has the names that only a real API
 * server accepts.
 */
import t from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { StorySite } from './site.ts'

const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n'
const ELSEWHERE = `---
apiVersion: v1
kind: Service
metadata: { name: elsewhere, namespace: shop }
spec: { type: ExternalName, externalName: example.org }
`
const NOTHING = `---
apiVersion: v1
kind: Service
metadata: { name: nothing, namespace: shop }
spec: { ports: [{ name: http, port: 80 }] }
`
const exportOf = (name: string): string => `---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: ${name}, namespace: shop }
`

t.test('exports that cannot work, and one that then does', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const milano = await StorySite.join(t, 'milano', broker)
  const paris = await StorySite.join(t, 'paris', broker, ['10.99.0.0/16'])
  await Promise.all([milano.start(), paris.start()])
  paris.write('shop.yaml', NAMESPACE)
  const exports = ['nothing', 'elsewhere'].map(exportOf).join('')
  milano.write('shop.yaml', NAMESPACE + ELSEWHERE + exports)

  const IN_TIME = { deadlineMs: 60_000 }
  const invalid = (name: string): Promise<string> =>
    eventually(() => milano.message(name, 'Valid', 'False'), { ...IN_TIME, say: `${name} is not valid` })
  t.equal(await invalid('nothing'), 'Service shop/nothing does not exist')
  t.equal(await invalid('elsewhere'), 'Service shop/elsewhere is of type ExternalName, which cannot be exported')
  const shown = await runCli(['show', 'exports', '--site', milano.folder.file])
  t.match(shown.stdout, /^shop +elsewhere +False \(InvalidServiceType\)/m)
  t.match(shown.stdout, /^shop +nothing +False \(NoService\)/m)
  t.strictSame(paris.imports(), [], 'nothing is imported')

  milano.write('shop.yaml', NAMESPACE + ELSEWHERE + NOTHING + exports)
  await eventually(() => paris.imports().some((line) => line.startsWith('shop/nothing ')), {
    ...IN_TIME,
    say: 'it is imported',
  })
  const valid = await runCli(['show', 'exports', '--site', milano.folder.file])
  t.match(valid.stdout, /^shop +nothing +True \(Valid\)/m)
  t.match(valid.stdout, /^shop +elsewhere +False \(InvalidServiceType\)/m, 'and the others are as they were')
})
