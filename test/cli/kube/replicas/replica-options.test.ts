import fc from 'fast-check'
import t from 'tap'
import {
  type ReplicaOptions,
  parseEtcdEndpoints,
  parseEtcdPrefix,
  parseReplicas,
  readEtcdUrl,
  withReplicas,
} from '../../../../cli/broker/deploy/deploy-options.ts'
import { refuseMove } from '../../../../cli/broker/deploy/move-broker.ts'
import { includedEtcdUrl } from '../../../../install/values/names.ts'
import { DEFAULT_VALUES, type InstallValues, formOf } from '../../../../install/values/install-values.ts'
import { UserError } from '../../../../runtime/errors.ts'

const OWN = DEFAULT_VALUES
const INCLUDED = withReplicas(OWN, { replicas: 3 })
const GIVEN = withReplicas(OWN, { replicas: 5, etcdEndpoints: ['h1:2379', 'h2:2379', 'h3:2379'] })

function thrown(work: () => unknown): { message: string; hint: string; exitCode: number } {
  try {
    work()
  } catch (error) {
    if (error instanceof UserError) return { message: error.message, hint: error.hint ?? '', exitCode: error.exitCode }
    throw error
  }
  return { message: 'nothing was thrown', hint: '', exitCode: 0 }
}

t.test('what flags ask for', async (t) => {
  const rows: readonly (readonly [string, InstallValues, ReplicaOptions, string])[] = [
    ['nothing said', OWN, {}, 'own'],
    ['one', OWN, { replicas: 1 }, 'own'],
    ['two', OWN, { replicas: 2 }, `included 2 ${includedEtcdUrl('sealane-broker')} certificate sealane-etcd-client`],
    ['three', OWN, { replicas: 3 }, `included 3 ${includedEtcdUrl('sealane-broker')} certificate sealane-etcd-client`],
    ['an etcd', OWN, { etcdEndpoints: ['h1:2379'] }, 'given 3 etcd://h1:2379/sealane certificate sealane-etcd-client'],
    [
      'an etcd with a password',
      OWN,
      { replicas: 4, etcdEndpoints: ['h1:1', 'h2:2'], etcdUser: 'hub', etcdPrefix: '/a/b', etcdSecret: 'login' },
      'given 4 etcd://hub@h1:1,h2:2/a/b password login',
    ],
    [
      'one replica on an etcd',
      OWN,
      { replicas: 1, etcdEndpoints: ['h1:1'] },
      'given 1 etcd://h1:1/sealane certificate sealane-etcd-client',
    ],
    [
      'the second time',
      INCLUDED,
      {},
      `included 3 ${includedEtcdUrl('sealane-broker')} certificate sealane-etcd-client`,
    ],
    [
      'more of them',
      INCLUDED,
      { replicas: 5 },
      `included 5 ${includedEtcdUrl('sealane-broker')} certificate sealane-etcd-client`,
    ],
    [
      'the second time, on an etcd',
      GIVEN,
      {},
      'given 5 etcd://h1:2379,h2:2379,h3:2379/sealane certificate sealane-etcd-client',
    ],
    ['fewer', GIVEN, { replicas: 2 }, 'given 2 etcd://h1:2379,h2:2379,h3:2379/sealane certificate sealane-etcd-client'],
    [
      'by a user',
      GIVEN,
      { etcdUser: 'hub' },
      'given 5 etcd://hub@h1:2379,h2:2379,h3:2379/sealane password sealane-etcd-client',
    ],
  ]
  for (const [what, before, chosen, want] of rows) {
    const values = withReplicas(before, chosen)
    const { replicas, etcd } = values.broker
    const form = formOf(values)
    t.equal(form === 'own' ? form : `${form} ${replicas} ${etcd.url} ${etcd.login} ${etcd.secret}`, want, what)
    t.same(withReplicas(values, chosen), values, `${what}: once more`)
  }
  const sized = withReplicas(OWN, {
    replicas: 3,
    etcdImage: 'e:1',
    etcdStorageSize: '20Gi',
    storageClass: 'fast',
  })
  t.match(sized.etcd, { enabled: true, image: 'e:1', storage: { size: '20Gi', storageClassName: 'fast' } })
  t.equal(sized.broker.storage.storageClassName, '')
})

t.test('flags that do not belong together', async (t) => {
  const rows: readonly (readonly [ReplicaOptions, string])[] = [
    [{ etcdUser: 'hub' }, '--etcd-user: expected --etcd-endpoints as well'],
    [{ replicas: 3, etcdPrefix: '/a' }, '--etcd-prefix: expected --etcd-endpoints as well'],
    [{ replicas: 1, etcdSecret: 'a' }, '--etcd-secret: expected --etcd-endpoints as well'],
    [{ etcdImage: 'e:1' }, '--etcd-image: expected --replicas 3 as well'],
    [
      { etcdEndpoints: ['h1:1'], etcdStorageSize: '8Gi' },
      '--etcd-storage-size: applies only to an etcd that is installed with the broker; expected no --etcd-endpoints',
    ],
  ]
  for (const [chosen, want] of rows) {
    t.match(
      thrown(() => withReplicas(OWN, chosen)),
      { message: want, exitCode: 2 },
    )
  }
})

t.test('numbers, endpoints and prefixes as people write them', async (t) => {
  for (const text of ['0', '-1', '10', '1.5', '', 'three', '١', '99999']) {
    t.match(
      thrown(() => parseReplicas(text)),
      {
        message: `--replicas ${JSON.stringify(text)}: expected 1 (with its own volume) to 9 (on etcd)`,
        exitCode: 2,
      },
    )
  }
  t.same(
    [1, 3, 9].map((count) => parseReplicas(String(count))),
    [1, 3, 9],
  )
  t.same(parseEtcdEndpoints('h1,https://h2:99/, [2001:db8::1]:2379,h1:2379'), [
    'h1:2379',
    'h2:99',
    '[2001:db8::1]:2379',
  ])
  const rows = [
    [
      'http://h1:2379',
      'expected etcd over TLS, https://host:port or host:port, because without TLS anyone on the network could read the store',
    ],
    [
      'h1,HTTP://h2',
      'expected etcd over TLS, https://host:port or host:port, because without TLS anyone on the network could read the store',
    ],
    ['h1,', 'expected host:port, separated by commas'],
    ['', 'expected host:port, separated by commas'],
    ['user:secret@h1:2379', 'expected host:port, separated by commas'],
    ['h1/path', 'expected host:port, separated by commas'],
    [Array.from({ length: 17 }, (_, i) => `h${i}`).join(','), 'expected at most 16 endpoints'],
  ] as const
  for (const [text, want] of rows) {
    t.equal(thrown(() => parseEtcdEndpoints(text)).message, `--etcd-endpoints ${JSON.stringify(text)}: ${want}`)
  }
  t.throws(() => parseEtcdEndpoints('h1:70000'))
  t.equal(parseEtcdPrefix('/a/b-c_d.e'), '/a/b-c_d.e')
  for (const text of ['', '/', 'a', '/a/', '/a//b', '/a b', `/${'a'.repeat(200)}`]) {
    t.match(
      thrown(() => parseEtcdPrefix(text)),
      { exitCode: 2 },
      text,
    )
  }
})

t.test('an URL that was made is read back', async (t) => {
  const name = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/)
  const endpoint = fc.tuple(name, fc.integer({ min: 1, max: 65_535 })).map(([host, port]) => `${host}:${port}`)
  const chosen = fc.record(
    { etcdEndpoints: fc.uniqueArray(endpoint, { minLength: 1, maxLength: 16 }), etcdUser: name, etcdPrefix: name },
    { requiredKeys: ['etcdEndpoints'] },
  )
  const property = fc.property(chosen, ({ etcdEndpoints, etcdUser, etcdPrefix }) => {
    const prefix = etcdPrefix === undefined ? {} : { etcdPrefix: `/${etcdPrefix}` }
    const user = etcdUser === undefined ? {} : { etcdUser }
    const values = withReplicas(OWN, { etcdEndpoints, ...user, ...prefix })
    t.same(readEtcdUrl(values.broker.etcd.url), {
      endpoints: etcdEndpoints,
      user: etcdUser,
      prefix: prefix.etcdPrefix ?? '/sealane',
    })
    t.same(parseEtcdEndpoints(etcdEndpoints.join(',')), etcdEndpoints)
  })
  fc.assert(property, { numRuns: 100 })
})

t.test('a command that would start empty is refused, and names the one that moves', async (t) => {
  const other = withReplicas(GIVEN, { etcdEndpoints: ['h9:2379'] })
  const moved = withReplicas(GIVEN, { etcdEndpoints: ['h3:2379', 'h4:2379'] })
  const elsewhere = withReplicas(GIVEN, { etcdPrefix: '/b' })
  const rows: readonly (readonly [string, InstallValues, InstallValues, RegExp | undefined])[] = [
    ['the same', OWN, OWN, undefined],
    ['more replicas', INCLUDED, withReplicas(INCLUDED, { replicas: 5 }), undefined],
    ['fewer', GIVEN, withReplicas(GIVEN, { replicas: 2 }), undefined],
    ['a member of etcd was replaced', GIVEN, moved, undefined],
    ['own to included', OWN, INCLUDED, /^to move the state, .* run the same command with --move$/m],
    ['own to given', OWN, GIVEN, /^to move the state, .* run the same command with --move$/m],
    [
      'included to own',
      INCLUDED,
      withReplicas(INCLUDED, { replicas: 1 }),
      /^to move the state, .* run the same command with --move$/m,
    ],
    [
      'given to own',
      GIVEN,
      withReplicas(GIVEN, { replicas: 1 }),
      /^to move the state, .* run the same command with --move$/m,
    ],
    ['included to given', INCLUDED, GIVEN, /--from etcd:\/\/\S+ --to etcd:\/\/\S+$/m],
    ['another etcd', GIVEN, other, /--from etcd:\/\/\S+ --to etcd:\/\/\S+$/m],
    ['another prefix', GIVEN, elsewhere, /--from etcd:\/\/\S+ --to etcd:\/\/\S+$/m],
  ]
  for (const [what, before, values, want] of rows) {
    const { message, hint } = thrown(() => refuseMove({ title: 'hub', before, values }))
    if (want === undefined) {
      t.equal(message, 'nothing was thrown', what)
      continue
    }
    t.match(message, /^hub already has .*, which would start with an empty state$/, what)
    t.match(hint, want, what)
    t.ok(hint.endsWith('nothing was changed'), what)
  }
})
