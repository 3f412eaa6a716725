import t from 'tap'
import { parseEtcdUrl } from '../../../broker/store/etcd/etcd-url.ts'
import { messageOf } from '../../support/failure.ts'

t.test('endpoints, user and prefix', async (t) => {
  t.same(parseEtcdUrl('etcd://broker@h1:2379,h2:2380,[2001:db8::1]:2379/a/b/', '--store'), {
    endpoints: [
      { host: 'h1', port: 2379 },
      { host: 'h2', port: 2380 },
      { host: '2001:db8::1', port: 2379 },
    ],
    user: 'broker',
    prefix: '/a/b',
  })
  t.same(parseEtcdUrl('etcd://h1,[2001:db8::1]', '--store'), {
    endpoints: [
      { host: 'h1', port: 2379 },
      { host: '2001:db8::1', port: 2379 },
    ],
    prefix: '/sealane',
  })
})

t.test('what is wrong is named, and a password is not repeated', async (t) => {
  const expected = 'expected etcd://[user@]host:port[,host:port…][/prefix]'
  const rows = [
    ['h1:2379', `--store "h1:2379": ${expected}`],
    ['https://h1:2379', `--store "https://h1:2379": ${expected}`],
    ['etcd://@h1', `--store "etcd://…@h1": ${expected}`],
    ['etcd://', `--store "etcd://": ${expected}`],
    [
      'etcd://u:secret@h1/p',
      '--store "etcd://u:…@h1/p": expected the password in a file of its own: --etcd-password-file',
    ],
    ['etcd://h1,/p', '--store ":2379": expected host:port such as 10.0.0.1:53 or [2001:db8::1]:53'],
    ['etcd://h1:0/p', '--store "h1:0": expected a port from 1 to 65535'],
    [
      'etcd://h1/a b',
      `--store "etcd://h1/a b": expected a prefix such as /sealane/prod: of letters, digits, '.', '_', '-' and '/'`,
    ],
    [
      'etcd://h1/a//b',
      `--store "etcd://h1/a//b": expected a prefix such as /sealane/prod: of letters, digits, '.', '_', '-' and '/'`,
    ],
  ] as const
  for (const [text, message] of rows) t.equal(await messageOf(() => parseEtcdUrl(text, '--store')), message)
})
