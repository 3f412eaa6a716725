/** The one file of a node that does not see the folder of its site. */
import t from 'tap'
import { InvalidFileError } from '../../../kubeapi/files/problem-board.ts'
import { formatNodeFile, parseNodeFile } from '../../../kubeapi/files/node-file.ts'

const PEM = `-----BEGIN CERTIFICATE-----\n${'QUJD'.repeat(16)}\n-----END CERTIFICATE-----\n`
const INIT = {
  node: 'gw2.example',
  site: 'milano',
  hubs: ['192.0.2.1:9474', '[2001:db8::1]:9474'],
  token: `0123456789.${'a'.repeat(43)}`,
  certificateAuthority: PEM,
}

t.test('what is written is read', async (t) => {
  t.same(parseNodeFile('/etc/sealane/gw2.yaml', formatNodeFile(INIT)), {
    file: '/etc/sealane/gw2.yaml',
    node: 'gw2.example',
    site: 'milano',
    hubs: [
      { host: '192.0.2.1', port: 9474 },
      { host: '2001:db8::1', port: 9474 },
    ],
    token: INIT.token,
    certificateAuthority: PEM,
    state: '/etc/sealane/state',
  })
})

t.test('a file of another kind is none; what is wrong in one is named with its line', async (t) => {
  t.equal(parseNodeFile('site.yaml', 'kind: Site\n'), undefined)
  t.equal(parseNodeFile('site.yaml', ''), undefined)
  t.equal(parseNodeFile('site.yaml', '{'), undefined, 'the reader of the site file says what is wrong')
  const text = formatNodeFile(INIT)
  const rows: readonly [string, string, RegExp][] = [
    ['name: gw2.example', 'name: "../x"', /metadata\.name/],
    ['site: milano', 'site: a.b', /spec\.site/],
    ['192.0.2.1:9474', 'gw1:9474', /spec\.hubs\[0\]/],
    ['192.0.2.1:9474', '192.0.2.1', /spec\.hubs\[0\]/],
    ['token: 0123456789.', 'token: ', /spec\.token: expected the token of an invitation/],
    ['BEGIN CERTIFICATE', 'BEGIN PRIVATE KEY', /spec\.certificateAuthority/],
    ['spec:', 'spec:\n  other: 1', /other/],
  ]
  for (const [from, to, expected] of rows) {
    try {
      parseNodeFile('gw2.yaml', text.replace(from, to))
      t.fail(to)
    } catch (error) {
      t.ok(error instanceof InvalidFileError)
      t.match((error as Error).message, expected, to)
      t.notMatch((error as Error).message, INIT.token, 'no secret in a message')
    }
  }
})
