import t from 'tap'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import { IPV6_FORWARDING } from '../../../model/kernel-ids.ts'
import { sysctlCompliance } from '../../compliance/sysctl.ts'

const make = (): FakeSysctl => {
  const sysctl = new FakeSysctl()
  sysctl.provideDevice('lo')
  sysctl.provide(IPV6_FORWARDING, '0')
  return sysctl
}

sysctlCompliance(t, make)

t.test('prints itself', (t) => {
  t.match(
    make().toString(),
    /^net\/ipv4\/conf\/lo\/accept_local = 0\n[^]*net\/ipv4\/ip_forward = 0\nnet\/ipv6\/conf\/all\/forwarding = 0$/,
  )
  t.end()
})
