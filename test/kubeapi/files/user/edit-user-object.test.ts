/** Labels and annotations of a user's object change in its file, and everything else stays as it is. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { changeUserMetadata, changedText } from '../../../../kubeapi/files/user/edit-user-object.ts'
import { parseObjects } from '../../../../kubeapi/files/user/parse-objects.ts'
import { messageOf } from '../../../support/failure.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const NODES = `# our gateways
apiVersion: v1
kind: Node
metadata:
  name: gw1 # in the cellar
status:
  addresses:
    - { type: InternalIP, address: 192.168.1.1 }
---
apiVersion: v1
kind: Node
metadata: { name: gw2, labels: { 'sealane.io/drain': 'true' } }
`
const GW1 = { kind: 'Node', name: 'gw1' } as const
const GW2 = { kind: 'Node', name: 'gw2' } as const
const DRAIN = { labels: { 'sealane.io/drain': 'true' } }
const UNDRAIN = { labels: { 'sealane.io/drain': null } }

t.test('one object of several, with comments', (t) => {
  t.equal(
    changedText(NODES, GW1, DRAIN),
    NODES.replace('# in the cellar\n', '# in the cellar\n  labels:\n    sealane.io/drain: "true"\n'),
  )
  t.equal(changedText(NODES, GW2, UNDRAIN), NODES.replace(", labels: { 'sealane.io/drain': 'true' }", ''))
  t.equal(changedText(NODES, GW1, UNDRAIN), NODES, 'a key that is not there')
  t.equal(changedText(NODES, GW2, DRAIN), NODES, 'a key that is there')
  t.end()
})

t.test('the forms that a file may have', (t) => {
  const list = `apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Node\n    metadata: { name: gw1 }\n`
  const typed = `apiVersion: v1\nkind: NodeList\nitems:\n  - metadata: { name: gw1, labels: null }\n`
  const json = '{"apiVersion":"v1","kind":"Node","metadata":{"name":"gw1"}}'
  for (const text of [list, typed, json]) {
    const changed = changedText(text, GW1, DRAIN) ?? ''
    const result = parseObjects('x', changed)
    t.match(result, { file: { objects: [{ object: { metadata: { labels: DRAIN.labels } } }] } }, text)
  }
  t.end()
})

t.test('what cannot be changed alone is left to the user', (t) => {
  const shared =
    'apiVersion: v1\nkind: List\nitems:\n' +
    '  - &n { apiVersion: v1, kind: Pod, metadata: &m { name: gw1, namespace: a } }\n' +
    '  - { apiVersion: v1, kind: Node, metadata: *m }\n'
  t.equal(changedText(shared, GW1, DRAIN), undefined, 'metadata that another object has, too')
  t.equal(changedText('kind: [', GW1, DRAIN), undefined, 'no YAML')
  t.end()
})

t.test('in the folder', async (t) => {
  const folder = temporaryFolder(t)
  mkdirSync(join(folder, 'sub'))
  const file = join(folder, 'sub', 'nodes.yaml')
  writeFileSync(file, NODES)
  t.equal(await changeUserMetadata(folder, GW1, { annotations: { 'sealane.io/rotate-keys': 'now' } }), file)
  t.match(
    readFileSync(file, 'utf8'),
    /name: gw1 # in the cellar\n {2}annotations:\n {4}sealane\.io\/rotate-keys: now\n/,
  )
  t.equal(
    await messageOf(changeUserMetadata(folder, { kind: 'Node', name: 'w9' }, DRAIN)),
    `Node w9: no valid file below ${folder} has it`,
  )
})

t.test('any change is exactly the one that was asked for, or none', () => {
  const key = fc.constantFrom('a', 'sealane.io/drain', 'x.y/z')
  const value = fc.option(fc.stringMatching(/^[a-z0-9]{0,5}$/))
  const change = fc.record({ labels: fc.dictionary(key, value), annotations: fc.dictionary(key, value) })
  const cut = fc.tuple(fc.nat(NODES.length), fc.nat(3), fc.string({ maxLength: 3 }))
  fc.assert(
    fc.property(change, fc.constantFrom(GW1, GW2), fc.option(cut), (wanted, id, edit) => {
      const text = edit === null ? NODES : NODES.slice(0, edit[0]) + edit[2] + NODES.slice(edit[0] + edit[1])
      const changed = changedText(text, id, wanted)
      if (changed === undefined) return edit !== null
      const [before, after] = [parseObjects('x', text), parseObjects('x', changed)]
      if ('problems' in before || 'problems' in after) return false
      return after.file.objects.every(({ object }, i) => {
        const old = before.file.objects[i]?.object
        const isIt = object.kind === 'Node' && object.metadata.name === id.name
        const expected = Object.entries({ ...old?.metadata.labels, ...(isIt ? wanted.labels : {}) })
        const labels = Object.fromEntries(expected.filter(([, text]) => text !== null))
        return JSON.stringify(sorted(object.metadata.labels)) === JSON.stringify(sorted(labels))
      })
    }),
    { numRuns: 300 },
  )
  return Promise.resolve()
})

function sorted(labels: object = {}): unknown[] {
  return Object.entries(labels).sort()
}
