/** Connections through the proxies that a company's network may require: which proxy, and how to get through it. */
export {
  type Proxy,
  type ProxyChoice,
  type ProxyTarget,
  parseProxy,
  proxyChoice,
  proxyChoiceOnCall,
} from './proxy-rules.ts'
export { ProxyError, type TunnelInit, openTunnel, tunnelOver } from './tunnel.ts'
