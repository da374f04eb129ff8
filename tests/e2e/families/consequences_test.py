# SPDX-License-Identifier: Apache-2.0
"""A value that reaches the training by several ways is one incident: routers, loss terms with one origin, shared parameters and memory."""
from watched_program import WatchedProgramTest, brief, main

PROGRAMS = {
    "router": ("aten::log", """
import torch
from torch import nn
torch.manual_seed(0)
class MoE(nn.Module):
    def __init__(s):
        super().__init__(); s.router=nn.Linear(8,4); s.experts=nn.ModuleList(nn.Linear(8,8) for _ in range(4)); s.head=nn.Linear(8,1); s.bad=False
    def forward(s,x):
        logits=s.router(x)
        if s.bad: logits=torch.log(logits-logits.detach()-1)
        p=logits.softmax(-1)
        w,i=p.topk(2,-1)
        out=torch.zeros_like(x)
        for k in range(2):
            for e,ex in enumerate(s.experts):
                m=(i[:,k]==e)
                if m.any(): out=out.index_add(0,m.nonzero().squeeze(1),w[m,k:k+1]*ex(x[m]))
        aux=(p.mean(0)*p.mean(0)).sum()*4
        return s.head(out), aux
m=MoE(); opt=torch.optim.Adam(m.parameters(),lr=1e-3)
for step in range(5):
    m.bad=step==2
    opt.zero_grad(); y,aux=m(torch.randn(16,8)); loss=y.square().mean()+0.01*aux; loss.backward(); opt.step()
"""),
    "router_jitter_item": ("aten::div", """
import torch
from torch import nn
torch.manual_seed(0)
router=nn.Linear(8,4); expert=nn.Linear(8,8); head=nn.Linear(8,1)
ps=[*router.parameters(),*expert.parameters(),*head.parameters()]
opt=torch.optim.SGD(ps,lr=1e-2); log=[]
for step in range(5):
    x=torch.randn(16,8)
    g=router(x).softmax(-1)
    load=g.sum(0)
    balance=(load*0/(load.sum()*(0 if step==2 else 1))).sum()+g.var()
    log.append(balance.item())
    out=head(expert(x)*g[:,:1])
    opt.zero_grad(); (out.square().mean()+balance).backward(); opt.step()
"""),
    "vae": ("aten::exp", """
import torch
from torch import nn
torch.manual_seed(0)
class VAE(nn.Module):
    def __init__(s): super().__init__(); s.enc=nn.Linear(6,8); s.mu=nn.Linear(8,2); s.lv=nn.Linear(8,2); s.dec=nn.Linear(2,6)
    def forward(s,x,scale):
        h=torch.tanh(s.enc(x)); mu=s.mu(h); lv=s.lv(h)*scale
        z=mu+torch.randn_like(mu)*torch.exp(0.5*lv)
        return s.dec(z),mu,lv
m=VAE(); opt=torch.optim.Adam(m.parameters(),lr=1e-3)
for step in range(5):
    x=torch.randn(16,6)
    r,mu,lv=m(x,1e6 if step==2 else 1.0)
    rec=(r-x).square().mean(); kl=-0.5*(1+lv-mu.square()-lv.exp()).sum(1).mean()
    opt.zero_grad(); (rec+kl).backward(); opt.step()
"""),
    "vae_one_origin": ("aten::sqrt", """
import torch
from torch import nn
torch.manual_seed(0)
enc=nn.Linear(6,4); dec=nn.Linear(2,6)
opt=torch.optim.Adam([*enc.parameters(),*dec.parameters()],lr=1e-3)
for step in range(5):
    x=torch.randn(16,6)
    mu,var=enc(x).chunk(2,-1)
    var=torch.nn.functional.softplus(var)
    if step==2: var=var-var.detach()*2
    sd=torch.sqrt(var)
    z=mu+torch.randn_like(mu)*sd
    rec=(dec(z)-x).square().mean()
    kl=0.5*(mu.square()+var-1-2*torch.log(sd)).sum(1).mean()
    seen=(rec.item(),kl.item())
    opt.zero_grad(); (rec+kl).backward(); opt.step()
"""),
    "shared_parameter": ("aten::log", """
import torch
from torch import nn
torch.manual_seed(0)
a=nn.Sequential(nn.Linear(4,4),nn.Tanh(),nn.Linear(4,1)); b=nn.Sequential(nn.Linear(4,4),nn.ReLU(),nn.Linear(4,2))
b[0].weight=a[0].weight
oa=torch.optim.SGD(a.parameters(),lr=.1); ob=torch.optim.SGD(b.parameters(),lr=.1)
for step in range(6):
    x=torch.randn(8,4)
    la=a(x).square().mean()
    if step==2: la=torch.log(-la)
    oa.zero_grad(); la.backward(); oa.step()
    lb=b(x).square().mean()
    ob.zero_grad(); lb.backward(); ob.step()
"""),
    "shared_encoder_two_opts": ("aten::div", """
import torch
from torch import nn
torch.manual_seed(0)
enc=nn.Linear(4,8); ac=nn.Linear(8,2); cr=nn.Linear(8,1)
oa=torch.optim.Adam([*enc.parameters(),*ac.parameters()],lr=1e-2); oc=torch.optim.Adam([*enc.parameters(),*cr.parameters()],lr=1e-2)
for step in range(6):
    x=torch.randn(16,4)
    v=cr(enc(x)).squeeze(1); ret=torch.randn(16)
    adv=(ret-v).detach()
    if step==2: adv=(adv-adv.mean())/(adv*0).std()
    lc=(ret-v).square().mean(); oc.zero_grad(); lc.backward(); oc.step()
    la=-(ac(enc(x)).log_softmax(-1)[:,0]*adv).mean(); oa.zero_grad(); la.backward(); oa.step()
"""),
    "target_network": ("aten::div", """
import torch,copy
from torch import nn
torch.manual_seed(0)
q=nn.Linear(4,2); t=copy.deepcopy(q); opt=torch.optim.Adam(q.parameters(),lr=1e-2)
for step in range(8):
    x=torch.randn(16,4)
    with torch.no_grad(): y=1+0.9*t(x).max(1).values
    l=(q(x)[:,0]-y).square().mean()
    if step==2: l=l/(l*0).detach()
    opt.zero_grad(); l.backward(); opt.step()
    with torch.no_grad():
        for a,b in zip(t.parameters(),q.parameters()): a.mul_(.9).add_(b,alpha=.1)
"""),
    "ema": ("aten::sqrt", """
import torch,copy
from torch import nn
torch.manual_seed(0)
q=nn.Linear(4,2); ema=torch.optim.swa_utils.AveragedModel(q); opt=torch.optim.AdamW(q.parameters(),lr=1e-2)
for step in range(8):
    x=torch.randn(16,4)
    l=q(x).square().mean()
    if step==2: l=torch.sqrt(-l)
    opt.zero_grad(); l.backward(); opt.step(); ema.update_parameters(q)
    with torch.no_grad(): v=ema(x).sum().item()
"""),
    "state_dict_load": ("aten::sqrt", """
import torch,copy
from torch import nn
torch.manual_seed(0)
q=nn.Linear(4,2); r=nn.Linear(4,2); opt=torch.optim.AdamW(q.parameters(),lr=1e-2); o2=torch.optim.SGD(r.parameters(),lr=.1)
for step in range(8):
    x=torch.randn(16,4)
    l=q(x).square().mean()
    if step==2: l=torch.sqrt(-l)
    opt.zero_grad(); l.backward(); opt.step()
    r.load_state_dict(q.state_dict())
    l2=r(x).square().mean(); o2.zero_grad(); l2.backward(); o2.step()
"""),
    "share_memory": ("aten::log", """
import torch
from torch import nn
torch.manual_seed(0)
buf=torch.zeros(16,4).share_memory_()
m=nn.Linear(4,1); opt=torch.optim.SGD(m.parameters(),lr=.1)
for step in range(6):
    x=torch.randn(16,4)
    if step==2: x=torch.log(-x.abs()-1)
    buf.copy_(x)
    l=m(buf.clone()).square().mean(); opt.zero_grad(); l.backward(); opt.step()
"""),
    "gan": ("aten::log", """
import torch
from torch import nn
torch.manual_seed(0)
g=nn.Linear(4,4); d=nn.Linear(4,1); og=torch.optim.Adam(g.parameters(),lr=1e-3); od=torch.optim.Adam(d.parameters(),lr=1e-3)
for step in range(6):
    z=torch.randn(16,4); fake=g(z); real=torch.randn(16,4)
    dl=-(d(real).sigmoid().log().mean()+torch.log(1-d(fake.detach()).sigmoid()).mean())
    if step==2: dl=dl+torch.log(d(real).mean()*0)
    od.zero_grad(); dl.backward(); od.step()
    gl=-torch.log(d(g(z)).sigmoid()).mean(); og.zero_grad(); gl.backward(); og.step()
"""),
}


class Consequences(WatchedProgramTest):
    def test_each_is_one_incident(self):
        for name, (op, text) in PROGRAMS.items():
            with self.subTest(name):
                verdict = self.verdict_of(text)
                alarming = [each for each in verdict["incidents"] if each["severity"] != "info"]
                self.assertEqual([each["origin"]["op"] for each in alarming], [op], [brief(each) for each in verdict["incidents"]])
                origin = alarming[0]["origin"]
                self.assertEqual((origin["class"], int(origin["step"]), origin["exact"]), ("produce", 2, True))
                self.assertIn("loss", alarming[0]["reach"])

    # Each of ten parameters, of no module, has other memory after each step. The fixture's own step is the first.
    def test_parameters_that_are_given_other_memory_are_followed(self):
        verdict = self.verdict_of("""
import torch
torch.manual_seed(0)
weights=[torch.ones(4,4,requires_grad=True) for _ in range(10)]
for step in range(9):
    x=torch.ones(8,4)
    if step==2: x[2,2]=0
    x=x.log()
    for w in weights: x=torch.tanh(x@w)
    x.pow(2).mean().backward()
    for w in weights: w.data=w.data-1e-3*w.grad; w.grad=None
print(weights[0])
""")
        told = [(i["origin"]["op"], int(i["origin"]["step"])) for i in verdict["incidents"] if i["severity"] != "info"]
        self.assertEqual(told, [("aten::log", 3)])


main()
