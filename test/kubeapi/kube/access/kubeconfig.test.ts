/**
 * The server and the credentials to use, from kubeconfigs, plugins and pods, and the message for each mistake in them.
 */
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parse, stringify } from 'yaml'
import { type AccessInit, contextNames, openAccess } from '../../../../kubeapi/kube/kubeconfig.ts'
import { type Credentials, type ServerAccess, podAccess } from '../../../../kubeapi/kube/server-access.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { messageOf } from '../../../support/failure.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { fakeApiServer } from '../../../support/fake-api-server.ts'
import { openFake } from '../kube-site.ts'

const base64 = (text: string): string => Buffer.from(text).toString('base64')
const clock = new FakeClock()
const open = (init: AccessInit): Promise<ServerAccess> => openAccess(clock, { env: {}, ...init })
const shown = (access: ServerAccess): Promise<Credentials> => access.credentials(new AbortController().signal)

interface Parts {
  readonly user?: object
  readonly cluster?: object
  readonly current?: string | undefined
  readonly name?: string
}

function write(t: Test, parts: Parts = {}, folder = temporaryFolder(t), file = 'config'): string {
  const { user = { token: 'abc' }, cluster = {}, name = 'c1' } = parts
  const path = join(folder, file)
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'current' in parts ? parts.current : name,
    clusters: [{ name, cluster: { server: `https://${name}.example:6443`, ...cluster } }],
    users: [{ name: `${name}-admin`, user }],
    contexts: [{ name, context: { cluster: name, user: `${name}-admin`, namespace: 'apps' } }],
  }
  writeFileSync(path, stringify(config))
  return path
}

t.test('the names of all contexts, of several files too', (t) => {
  const folder = temporaryFolder(t)
  const [one, two] = ['c1', 'c2'].map((name) => write(t, { name }, folder, name)) as [string, string]
  t.strictSame(contextNames({ kubeconfig: one, env: {} }), { names: ['c1'], current: 'c1' })
  const env = { KUBECONFIG: `${two}:${join(folder, 'none')}:${one}` }
  t.strictSame(contextNames({ env }), { names: ['c2', 'c1'], current: 'c2' })
  t.strictSame(contextNames({ env: { HOME: folder } }), { names: [], current: undefined })
  t.end()
})

t.test('the usual ways to log in', async (t) => {
  const folder = temporaryFolder(t)
  writeFileSync(join(folder, 'token'), 'from a file\n')
  for (const name of ['ca', 'crt', 'key']) writeFileSync(join(folder, name), `the ${name}`)
  const rows: readonly { say: string; parts: Parts; want: object }[] = [
    { say: 'a token', parts: { user: { token: 'abc' } }, want: { headers: { authorization: 'Bearer abc' } } },
    {
      say: 'a token file',
      parts: { user: { tokenFile: 'token' } },
      want: { headers: { authorization: 'Bearer from a file' } },
    },
    {
      say: 'a password',
      parts: { user: { username: 'ana', password: 'secret' } },
      want: { headers: { authorization: `Basic ${base64('ana:secret')}` } },
    },
    {
      say: 'a certificate in files beside the kubeconfig',
      parts: { user: { 'client-certificate': 'crt', 'client-key': 'key' }, cluster: { 'certificate-authority': 'ca' } },
      want: { ca: Buffer.from('the ca'), cert: Buffer.from('the crt'), key: Buffer.from('the key') },
    },
    {
      say: 'a certificate in the kubeconfig',
      parts: {
        user: { 'client-certificate-data': base64('C'), 'client-key-data': base64('K') },
        cluster: { 'certificate-authority-data': base64('A'), 'tls-server-name': 'other' },
      },
      want: { ca: Buffer.from('A'), cert: Buffer.from('C'), key: Buffer.from('K'), servername: 'other' },
    },
    {
      say: 'as someone else, and without trust',
      parts: { user: { token: 'abc', as: 'ben' }, cluster: { 'insecure-skip-tls-verify': true } },
      want: { headers: { authorization: 'Bearer abc', 'impersonate-user': 'ben' }, rejectUnauthorized: false },
    },
    {
      say: 'as someone else, whole',
      parts: {
        user: {
          token: 'abc',
          as: 'ben',
          'as-uid': 'u-1',
          'as-groups': ['dev', 'ops, all'],
          'as-user-extra': { scopes: ['view', 'edit'], 'example.org/Team%': ['a'] },
        },
      },
      want: {
        headers: {
          authorization: 'Bearer abc',
          'impersonate-user': 'ben',
          'impersonate-uid': 'u-1',
          'impersonate-group': ['dev', 'ops, all'],
          'impersonate-extra-scopes': ['view', 'edit'],
          'impersonate-extra-example.org%2FTeam%25': ['a'],
        },
      },
    },
  ]
  for (const { say, parts, want } of rows) {
    const access = await open({ kubeconfig: write(t, parts, folder) })
    t.match(await shown(access), want, say)
    t.match(access, { server: { href: 'https://c1.example:6443/' }, namespace: 'apps', title: /^context "c1" of / })
  }
})

t.test('as someone else: on the wire, one header for each value', async (t) => {
  for (const speak of ['h2', 'http1'] as const) {
    const server = await fakeApiServer(t, { speak })
    const config = parse(readFileSync(server.kubeconfig, 'utf8')) as { users: { name: string; user: object }[] }
    const [fake] = config.users
    if (fake === undefined) throw new Error('the kubeconfig names a user')
    fake.user = {
      ...fake.user,
      ...{ as: 'ben', 'as-groups': ['dev', 'ops'], 'as-user-extra': { scopes: ['view', 'edit'] } },
    }
    const kubeconfig = join(temporaryFolder(t), 'config')
    writeFileSync(kubeconfig, stringify(config))
    const { api } = await openFake(t, server, { kubeconfig })
    await api.dynamic.knows({ apiVersion: 'v1', kind: 'Service' })
    t.same(
      server.impersonation,
      [
        'impersonate-user: ben',
        'impersonate-group: dev',
        'impersonate-group: ops',
        'impersonate-extra-scopes: view',
        'impersonate-extra-scopes: edit',
      ],
      speak,
    )
  }
})

t.test('as someone else: what cannot be meant', async (t) => {
  const folder = temporaryFolder(t)
  const rows: readonly (readonly [user: object, want: string])[] = [
    [{ as: 7 }, 'as: expected a text'],
    [{ as: 'ben', 'as-uid': ['x'] }, 'as-uid: expected a text'],
    [{ as: 'ben', 'as-groups': 'dev' }, 'as-groups: expected a list of texts'],
    [{ as: 'ben', 'as-groups': [1] }, 'as-groups: expected a list of texts'],
    [{ as: 'ben', 'as-user-extra': ['a'] }, 'as-user-extra: expected a list of texts for each key'],
    [{ as: 'ben', 'as-user-extra': { scopes: 'a' } }, 'as-user-extra: scopes: expected a list of texts'],
    [{ as: 'jörg €' }, 'as: "jörg €": expected printable ASCII: it is sent as a header'],
    [{ as: 'ben', 'as-uid': 'a\nb' }, 'as-uid: "a\\nb": expected printable ASCII: it is sent as a header'],
    [{ as: 'ben', 'as-groups': ['dev', 'öl'] }, 'as-groups: "öl": expected printable ASCII: it is sent as a header'],
    [
      { as: 'ben', 'as-user-extra': { scopes: ['\u0000'] } },
      'as-user-extra: scopes: "\\u0000": expected printable ASCII: it is sent as a header',
    ],
    [{ 'as-groups': ['dev'] }, 'as-groups without as: an API server accepts them only with a user'],
    [{ as: '', 'as-uid': 'x' }, 'as-uid without as: an API server accepts them only with a user'],
  ]
  for (const [user, want] of rows) {
    const kubeconfig = write(t, { user }, folder)
    t.equal(await messageOf(open({ kubeconfig })), `kubeconfig ${kubeconfig}: user "c1-admin": ${want}`)
  }
  const nobody = await open({ kubeconfig: write(t, { user: { token: 'abc', 'as-groups': [] } }, folder) })
  t.same((await shown(nobody)).headers, { authorization: 'Bearer abc' })
})

t.test('entries of others that are wrong are passed by', async (t) => {
  const path = write(t)
  const config = parse(readFileSync(path, 'utf8')) as { users: object[] }
  const others = [{ user: { token: 'x' } }, { name: 'bad', user: { as: 7 } }, { name: 'empty', user: null }]
  writeFileSync(path, stringify({ ...config, users: [...others, ...config.users] }))
  t.same((await shown(await open({ kubeconfig: path }))).headers, { authorization: 'Bearer abc' })
})

t.test('a credential plugin', async (t) => {
  const folder = temporaryFolder(t)
  const plugin = join(folder, 'plugin')
  const answer = `{"status":{"token":"from $WHO, told $(echo "$KUBERNETES_EXEC_INFO" | tr -d '\\"')"}}`
  writeFileSync(plugin, `#!/bin/sh\necho run >> ${join(folder, 'runs')}\ncat <<END\n${answer}\nEND\n`)
  chmodSync(plugin, 0o755)
  const exec = {
    apiVersion: 'client.authentication.k8s.io/v1',
    command: './plugin',
    env: [{ name: 'WHO', value: 'ana' }],
    provideClusterInfo: true,
  }
  const access = await open({ kubeconfig: write(t, { user: { exec } }, folder) })
  t.match((await shown(access)).headers['authorization'], /^Bearer from ana, told .*kind:ExecCredential.*c1\.example/)

  const missing = write(t, { user: { exec: { command: 'no-such-plugin', installHint: 'get it from there' } } }, folder)
  await t.rejects(open({ kubeconfig: missing }).then(shown), {
    message: 'credential plugin no-such-plugin: it is not installed, or not in PATH (get it from there)',
  })
  writeFileSync(plugin, '#!/bin/sh\necho "you are not logged in" >&2\nexit 1\n')
  await t.rejects(open({ kubeconfig: write(t, { user: { exec } }, folder) }).then(shown), {
    message: 'credential plugin ./plugin: you are not logged in',
  })
})

t.test('a credential plugin: what it is told, how long its answer counts, and what is wrong with it', async (t) => {
  const folder = temporaryFolder(t)
  const plugin = join(folder, 'plugin')
  const clock = new FakeClock()
  const says = (answer: string): void => {
    writeFileSync(join(folder, 'answer'), answer)
    writeFileSync(
      plugin,
      `#!/bin/sh\necho run >> ${folder}/runs\necho "$KUBERNETES_EXEC_INFO" > ${folder}/info\necho "$@" > ${folder}/args\ncat > ${folder}/stdin\ncat ${folder}/answer\n`,
    )
    chmodSync(plugin, 0o755)
  }
  const runs = (): number => readFileSync(join(folder, 'runs'), 'utf8').trim().split('\n').length
  const v1 = 'client.authentication.k8s.io/v1'
  const using = (exec: object, cluster: object = {}): Promise<ServerAccess> => {
    const user = { exec: { apiVersion: v1, command: plugin, args: ['get-token', 'a b'], ...exec } }
    return openAccess(clock, { env: {}, kubeconfig: write(t, { user, cluster }, folder) })
  }
  const answer = (status: object, more: object = {}): string =>
    JSON.stringify({ apiVersion: v1, kind: 'ExecCredential', status, ...more })

  writeFileSync(join(folder, 'ca.pem'), 'the ca')
  const extensions = [{ name: 'client.authentication.k8s.io/exec', extension: { audience: 'x' } }]
  const until = new Date(clock.now() + 60_000).toISOString()
  says(answer({ token: 'one', expirationTimestamp: until }))
  const access = await using(
    { provideClusterInfo: true, interactiveMode: 'IfAvailable' },
    { 'certificate-authority': 'ca.pem', extensions },
  )
  t.match((await shown(access)).headers, { authorization: 'Bearer one' })
  t.same(JSON.parse(readFileSync(join(folder, 'info'), 'utf8')), {
    apiVersion: v1,
    kind: 'ExecCredential',
    spec: {
      interactive: false,
      cluster: {
        server: 'https://c1.example:6443',
        'insecure-skip-tls-verify': false,
        'certificate-authority-data': base64('the ca'),
        config: { audience: 'x' },
      },
    },
  })
  t.equal(readFileSync(join(folder, 'args'), 'utf8'), 'get-token a b\n')
  t.equal(readFileSync(join(folder, 'stdin'), 'utf8'), '')
  await clock.advance(50_000)
  await shown(access)
  t.equal(runs(), 1, 'kept')
  says(answer({ token: 'two' }))
  await clock.advance(6000)
  t.match((await shown(access)).headers, { authorization: 'Bearer two' }, 'just before it expires')
  await clock.advance(10 * 24 * 3_600_000)
  await shown(access)
  t.equal(runs(), 2, 'without a time it does not expire')
  access.forget()
  says(answer({ clientCertificateData: 'CERT', clientKeyData: 'KEY' }))
  t.match(await shown(access), { cert: 'CERT', key: 'KEY' }, 'after a refusal')

  const v1beta1 = 'client.authentication.k8s.io/v1beta1'
  says(answer({ token: 'beta' }, { apiVersion: v1beta1 }))
  t.match((await shown(await using({ apiVersion: v1beta1 }))).headers, { authorization: 'Bearer beta' })
  t.match(JSON.parse(readFileSync(join(folder, 'info'), 'utf8')), { apiVersion: v1beta1, spec: { interactive: false } })

  const rows: readonly (readonly [answer: string, want: string])[] = [
    ['', 'its answer is not JSON'],
    ['[]', 'its answer is not an object'],
    ['{"token":"secret"}', 'its answer has no status'],
    [answer({}), 'its answer has no token and no certificate'],
    [answer({ token: 7 }), 'its answer: status.token: expected a text'],
    [answer({ token: 'sec\r\nret: x' }), 'its answer: status.token: expected printable ASCII: it is sent as a header'],
    [
      answer({ clientCertificateData: 'secret' }),
      'its answer has a certificate without a key, or a key without a certificate',
    ],
    [answer({ token: 'secret' }, { kind: 'Pod' }), 'its answer is not an ExecCredential'],
    [
      answer({ token: 'secret' }, { apiVersion: v1beta1 }),
      `its answer has another apiVersion than the kubeconfig: expected ${v1}`,
    ],
    [
      answer({ token: 'secret', expirationTimestamp: 'soon' }),
      'its answer: status.expirationTimestamp: expected an RFC 3339 time',
    ],
    ['x'.repeat(2 << 20), 'it wrote more than 1048576 bytes'],
  ]
  for (const [text, want] of rows) {
    says(text)
    t.equal(await messageOf(using({}).then(shown)), `credential plugin ${plugin}: ${want}`)
  }
  t.match(
    await messageOf(using({ interactiveMode: 'Always' }).then(shown)),
    /it wants a terminal \(interactiveMode Always\), and this process has none$/,
  )
  t.match(
    await messageOf(using({ interactiveMode: 'Sometimes' }).then(shown)),
    /expected Never, IfAvailable or Always$/,
  )
  t.match(await messageOf(using({ command: '' }).then(shown)), /the kubeconfig names no command$/)
})

t.test('the proxy of a context', async (t) => {
  const folder = temporaryFolder(t)
  const proxyOf = async (cluster: object, env: Record<string, string> = {}): Promise<string | undefined> =>
    (await open({ kubeconfig: write(t, { cluster }, folder), env })).proxy?.title
  t.equal(await proxyOf({}), undefined)
  t.equal(await proxyOf({ 'proxy-url': 'socks5://ana:secret@proxy.example' }), 'socks5://proxy.example:1080')
  const env = { HTTPS_PROXY: 'http://ana:secret@proxy.example:3128', NO_PROXY: '.corp.example' }
  t.equal(await proxyOf({}, env), 'http://proxy.example:3128')
  t.equal(await proxyOf({ server: 'https://api.corp.example:6443' }, env), undefined)
  const both = { server: 'https://api.corp.example:6443', 'proxy-url': 'https://other.example' }
  t.equal(await proxyOf(both, env), 'https://other.example:443', 'NO_PROXY is about the environment')
  t.equal(await proxyOf({ server: 'https://127.0.0.1:6443' }, env), undefined)
  const said = await messageOf(
    open({ kubeconfig: write(t, { cluster: { 'proxy-url': 'ftp://ana:secret@x' } }, folder) }),
  )
  t.match(said, /context "c1": cluster\.proxy-url: expected the URL of a proxy/)
  t.notMatch(said, 'secret')
  const auth = { 'auth-provider': { name: 'oidc', config: { 'id-token': 'x.y.z' } } }
  const oidc = await open({
    kubeconfig: write(t, { user: auth, cluster: { 'proxy-url': 'http://proxy.example' } }, folder),
  })
  t.equal(oidc.proxy?.title, 'http://proxy.example:80', 'with every kind of login')
})

t.test('a credential plugin runs once for all who ask, and its failure is said', async (t) => {
  const server = await fakeApiServer(t)
  const config = parse(readFileSync(server.kubeconfig, 'utf8')) as { users: { name: string; user: object }[] }
  const folder = temporaryFolder(t)
  const plugin = join(folder, 'plugin')
  const kubeconfig = join(folder, 'config')
  writeFileSync(plugin, `#!/bin/sh\necho run >> ${join(folder, 'runs')}\nsleep 0.1\necho '{"status":{"token":"x"}}'\n`)
  chmodSync(plugin, 0o755)
  writeFileSync(
    kubeconfig,
    stringify({ ...config, users: [{ name: 'fake', user: { exec: { command: './plugin' } } }] }),
  )
  const { api } = await openFake(t, server, { kubeconfig })
  const kinds = ['Service', 'Pod', 'Node'] as const
  await Promise.all(kinds.map((kind) => api.cache(kind).whenSynced(AbortSignal.timeout(5000))))
  t.equal(readFileSync(join(folder, 'runs'), 'utf8'), 'run\n')

  writeFileSync(plugin, '#!/bin/sh\necho "your session has expired" >&2\nexit 1\n')
  const { api: late } = await openFake(t, server, { kubeconfig })
  await t.rejects(late.secrets.read('x'), {
    code: 'Unauthorized',
    message: `get Secret sealane-system/x: authentication at the API server ${server.url} failed: credential plugin ./plugin: your session has expired`,
  })
  writeFileSync(plugin, '#!/bin/sh\nexec sleep 5\n')
  const { api: stuck } = await openFake(t, server, { kubeconfig })
  await t.rejects(stuck.dynamic.read('/version', AbortSignal.timeout(100)), { name: 'TimeoutError' })
})

t.test('which file, which context', async (t) => {
  const folder = temporaryFolder(t)
  const [a, b] = [write(t, { name: 'a' }, folder, 'a'), write(t, { name: 'b' }, folder, 'b')]
  const server = async (init: AccessInit): Promise<string> => (await open(init)).server.hostname
  t.equal(await server({ kubeconfig: b }), 'b.example')
  t.equal(await server({ env: { KUBECONFIG: `${a}:${b}` } }), 'a.example', 'the first current context')
  t.equal(await server({ env: { KUBECONFIG: `${a}:${b}` }, context: 'b' }), 'b.example')
  t.equal(await server({ env: { KUBECONFIG: `${folder}/none:${b}` } }), 'b.example', 'a missing one of several')
  mkdirSync(join(folder, '.kube'))
  write(t, { name: 'home' }, join(folder, '.kube'))
  t.equal(await server({ env: { HOME: folder } }), 'home.example')
})

t.test('what is wrong is said', async (t) => {
  const folder = temporaryFolder(t)
  const broken = join(folder, 'broken')
  writeFileSync(broken, 'clusters: [')
  const nameless = join(folder, 'nameless')
  writeFileSync(nameless, 'clusters: [{ cluster: { server: https://x } }]')
  const text = join(folder, 'text')
  writeFileSync(text, 'hello')
  const good = write(t, {}, folder)
  const none = `${folder}/none`
  const rows: readonly { init: AccessInit; message: string | RegExp }[] = [
    { init: { kubeconfig: none }, message: `kubeconfig ${none} does not exist` },
    { init: { env: { KUBECONFIG: none } }, message: `kubeconfig ${none} does not exist` },
    { init: { kubeconfig: broken }, message: new RegExp(`^kubeconfig ${broken}: .* at line 1`) },
    { init: { kubeconfig: nameless }, message: `kubeconfig ${nameless}: clusters[0].name is missing` },
    { init: { kubeconfig: text }, message: `kubeconfig ${text}: expected a document of kind Config` },
    { init: { kubeconfig: good, context: 'c2' }, message: `kubeconfig ${good} has no context "c2"; it has: c1` },
    {
      init: { kubeconfig: write(t, { current: undefined }, folder, 'no-current') },
      message: `kubeconfig ${folder}/no-current has no current context`,
    },
    {
      init: { kubeconfig: write(t, { cluster: { server: 'c1:6443' } }, folder, 'no-url') },
      message: `kubeconfig ${folder}/no-url: context "c1": cluster.server "c1:6443": expected an https URL`,
    },
    {
      init: { env: { HOME: '/nonexistent' } },
      message: 'no kubeconfig: KUBECONFIG is not set, ~/.kube/config does not exist and this is no pod',
    },
  ]
  for (const { init, message } of rows) await t.rejects(open(init), { name: 'UserError', message })
})

t.test('a pod: environment, mounted token and certificate, read again', async (t) => {
  const folder = temporaryFolder(t)
  const put = (name: string, text: string): void => writeFileSync(join(folder, name), text)
  const env = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '443' }
  const clock = new FakeClock()
  t.equal(podAccess(clock, { env, folder }), undefined, 'no token, no pod')
  put('token', 'one')
  put('ca.crt', 'the ca')
  put('namespace', 'sealane-system')
  const access = podAccess(clock, { env, folder })!
  t.match(access, { server: { href: 'https://[fd00::1]/' }, namespace: 'sealane-system' })
  t.match(await shown(access), { headers: { authorization: 'Bearer one' }, ca: Buffer.from('the ca') })
  put('token', 'two')
  t.match(await shown(access), { headers: { authorization: 'Bearer one' } }, 'for a minute')
  await clock.advance(60_000)
  t.match(await shown(access), { headers: { authorization: 'Bearer two' } })
  put('token', 'three')
  access.forget()
  t.match(await shown(access), { headers: { authorization: 'Bearer three' } }, 'at once after a refusal')
})
