/** Which proxy leads where: a table of variables and servers, with the answers of Go's httpproxy. */
import fc from 'fast-check'
import t from 'tap'
import { parseProxy, proxyChoice, proxyChoiceOnCall } from '../../../runtime/proxy/proxy-rules.ts'

const PROXY = 'http://proxy.example:3128'

t.test('NO_PROXY', async (t) => {
  const rows: readonly (readonly [list: string, through: readonly string[], direct: readonly string[]])[] = [
    [
      '',
      ['a.example:443', '192.0.2.1:443', '[2001:db8::1]:443'],
      ['localhost:1', '127.0.0.1:1', '127.9.9.9:1', '[::1]:1'],
    ],
    ['*', [], ['a.example:443', '192.0.2.1:443']],
    [
      'a.example',
      ['b.example:443', 'ba.example:1'],
      ['a.example:443', 'A.Example:443', 'x.a.example:1', 'a.example.:1'],
    ],
    ['.a.example', ['a.example:443'], ['x.a.example:443', 'x.y.a.example:443']],
    ['*.a.example', ['a.example:443'], ['x.a.example:443']],
    ['a.example:443', ['a.example:6443'], ['a.example:443', 'x.a.example:443']],
    ['10.0.0.0/8, 192.0.2.7', ['11.0.0.1:1', '192.0.2.8:1', 'a.example:1'], ['10.96.0.1:443', '192.0.2.7:6443']],
    ['192.0.2.7:6443', ['192.0.2.7:443'], ['192.0.2.7:6443']],
    ['fd00::/8,2001:db8::1', ['[2001:db8::2]:1'], ['[fd00::1]:1', '[2001:db8::1]:1']],
    ['[2001:db8::1]:443', ['[2001:db8::1]:1'], ['[2001:db8::1]:443']],
    ['10.0.0.0/33,10.0.0.0/x,/8,.,:443,,', ['10.0.0.1:443', 'a.example:443'], []],
    ['svc,cluster.local', ['svc.example:1'], ['sealane-broker.sealane-broker.svc:7443', 'x.cluster.local:1']],
  ]
  for (const [list, through, direct] of rows) {
    const choice = proxyChoice({ HTTPS_PROXY: PROXY, NO_PROXY: list })
    for (const text of through) t.equal(choice(at(text))?.title, PROXY, `${list}: ${text}`)
    for (const text of direct) t.equal(choice(at(text)), undefined, `${list}: ${text}`)
  }
})

t.test('the variables', async (t) => {
  const to = { host: 'a.example', port: 443 }
  t.equal(proxyChoice({})(to), undefined)
  t.equal(proxyChoice({ HTTPS_PROXY: '' })(to), undefined)
  t.equal(proxyChoice({ https_proxy: PROXY })(to)?.title, PROXY)
  t.equal(proxyChoice({ https_proxy: PROXY, HTTPS_PROXY: 'other:1' })(to)?.title, 'http://other:1')
  t.equal(proxyChoice({ HTTP_PROXY: PROXY, ALL_PROXY: PROXY })(to), undefined, 'not for servers with TLS')
  t.equal(proxyChoice({ http_proxy: PROXY }, 'http')(to)?.title, PROXY)
  t.equal(proxyChoice({ HTTPS_PROXY: PROXY, no_proxy: 'a.example' })(to), undefined)
})

t.test('a proxy', async (t) => {
  const read = (text: string) => {
    const { title, login } = parseProxy(text, 'HTTPS_PROXY')
    return login === undefined ? title : `${title} ${login.user} ${login.password}`
  }
  t.equal(read('proxy.example'), 'http://proxy.example:80')
  t.equal(read('proxy.example:3128'), 'http://proxy.example:3128')
  t.equal(read('https://proxy.example/'), 'https://proxy.example:443')
  t.equal(read('socks5h://[2001:db8::1]'), 'socks5://[2001:db8::1]:1080')
  t.equal(read('http://ana%40corp:p%3Aw@proxy.example:3128'), 'http://proxy.example:3128 ana@corp p:w')
  t.equal(read('http://ana@proxy.example'), 'http://proxy.example:80 ana ')
  for (const text of [
    'socks4://p',
    'ftp://p',
    'http://',
    'http://p/path',
    'http://p?x',
    'http://p\nq',
    'http://p:99999',
    'http://%zz:x@p',
  ]) {
    t.throws(() => parseProxy(text, 'HTTPS_PROXY'), {
      name: 'UserError',
      message: 'HTTPS_PROXY: expected the URL of a proxy, such as http://proxy.example:3128',
    })
  }
  fc.assert(
    fc.property(fc.string(), fc.string(), (text, list) => {
      try {
        proxyChoice({ HTTPS_PROXY: text, NO_PROXY: list })({ host: 'a.example', port: 443 })
      } catch (error) {
        t.equal((error as Error).message, 'HTTPS_PROXY: expected the URL of a proxy, such as http://proxy.example:3128')
      }
    }),
  )
})

function at(text: string): { host: string; port: number } {
  const [, host = '', port = ''] = /^(.*):(\d+)$/.exec(text) ?? []
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) }
}

t.test('a gateway starts with a proxy that cannot be parsed, and calls nothing', async (t) => {
  const env = { HTTPS_PROXY: 'gopher://ana:secret@proxy.test' }
  t.throws(() => proxyChoice(env))
  const choice = proxyChoiceOnCall(env)
  t.throws(() => choice({ host: 'relay.test', port: 443 }), { name: 'UserError', message: /^HTTPS_PROXY: expected/ })
  t.equal(proxyChoiceOnCall({ HTTPS_PROXY: PROXY })({ host: 'relay.test', port: 443 })?.title, PROXY)
  t.equal(proxyChoiceOnCall({})({ host: 'relay.test', port: 443 }), undefined)
})
